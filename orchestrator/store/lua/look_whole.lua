-- look_whole: whether a run, if there is one, has every key that it lies in
-- identity: any
-- keys: run
-- args:
-- moves: none
-- reply whole:
-- reply in_pieces:
load_run()
return { in_pieces() and 'in_pieces' or 'whole' }
