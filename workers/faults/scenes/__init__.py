"""The scenarios: each makes its runs, does its worst, and returns when they have ended. It is judged later.

lost        S1, S2, S3     somebody is killed
held        S4, S5, S9     something takes too long
server      S6, S7         the server forgets, or goes away
said        S8, S10, S11   something is said twice, or fails by itself
published   S12            whoever publishes is killed
"""
