"""The page of a season: what the entries of one board show, told from the board's database.

Every number comes from a query and every sentence holds for whatever data there is: `page.render`
on the same database gives the same bytes.
"""
