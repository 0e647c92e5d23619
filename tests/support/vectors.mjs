// Recomputes the golden vectors with Node.js alone, so that they do not rest on the code they test.
//   node vectors.mjs FOLDER           print what differs, one line each; exit 1 if anything does
//   node vectors.mjs FOLDER --write   fill in the computed fields of the files
//   node vectors.mjs --numbers        doubles as 16 hex digits a line on stdin, their JSON on stdout
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const sha256 = (text) => createHash("sha256").update(text, "utf8");

function canonical(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const member = (key) => `${JSON.stringify(key)}:${canonical(value[key])}`;
  return `{${Object.keys(value).sort().map(member).join(",")}}`; // sort() compares UTF-16 code units
}

const hash = (value) => sha256(canonical(value)).digest("hex");

function uuid8(digest) {
  const bytes = digest.subarray(0, 16);
  bytes[6] = (bytes[6] & 0x0f) | 0x80;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

const computed = {
  "canonical.json": ({ text }) => {
    const value = JSON.parse(text);
    return { canonical: canonical(value), sha256: hash(value) };
  },
  "runs.json": ({ principal, session_id, request_id }) => ({
    run_id: uuid8(sha256(canonical(["mandor.run.1", principal, session_id, request_id])).digest()),
    session_key: session_id === null ? "-" : sha256(session_id).digest("hex").slice(0, 16),
  }),
  "tokens.json": ({ plan_id, index, action, params }) => ({
    token: `step:${plan_id.toLowerCase()}:${index}:${hash({ action, params: JSON.parse(params) })}`,
  }),
  "policies.json": ({ policy }) => ({ canonical: canonical(policy), policy_hash: hash(policy) }),
};

function differences(folder, name, compute, write) {
  const path = join(folder, name);
  const vectors = JSON.parse(readFileSync(path, "utf8"));
  const wrong = [];
  for (const vector of vectors) {
    for (const [field, value] of Object.entries(compute(vector))) {
      if (vector[field] !== value) wrong.push(`${name}: ${vector.name}: ${field} is ${value}`);
      vector[field] = value;
    }
  }
  if (write) writeFileSync(path, `${JSON.stringify(vectors, null, 2)}\n`);
  return wrong;
}

function numbers(lines) {
  return lines.map((hex) => JSON.stringify(Buffer.from(hex, "hex").readDoubleBE())).join("\n");
}

const [first, second] = process.argv.slice(2);
if (first === "--numbers") {
  console.log(numbers(readFileSync(0, "utf8").trim().split("\n")));
} else {
  const wrong = Object.entries(computed).flatMap(([name, compute]) => differences(first, name, compute, second === "--write"));
  wrong.forEach((line) => console.log(line));
  process.exitCode = wrong.length && second !== "--write" ? 1 : 0;
}
