"""Values as configuration writes them: quantities, lists in quotes, types of values. They import nothing of Yarrow."""
