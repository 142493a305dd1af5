"""Files of blocks (row groups, stripes, blocks of Avro): their readers, and what is left out of damaged ones.

Owner: none. Importing it loads no library of files.
"""
