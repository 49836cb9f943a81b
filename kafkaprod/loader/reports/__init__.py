"""What a load counts, and the page that shows it.

report_page  the report as one HTML page, for `--report`
report       the counts and times of a load
spread       counts records by partition and by size
"""
