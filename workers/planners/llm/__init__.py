"""Models: the planner `llm` and what it shares with the action `model.ask`.

protocol.py    Prompt, Call, Reply, Model (two methods), and what can go wrong
http.py        the client below the providers' libraries: bounded in time and size, of this process alone
openai.py      anything that speaks OpenAI's chat completions; needs the extra `openai`
anthropic.py   Anthropic's messages; needs the extra `anthropic`
configured.py  the model of the settings
prompts.py     what a planner's model is told; pure
planner.py     the planner `llm`
"""
