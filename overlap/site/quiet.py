"""Imported by mkdocs.yml before the theme is: what others say at their import is nothing a reader can mend.

The README says what Material's notice says. jieba, which search cuts Chinese with, has escapes that Python
warns of when it compiles them.
"""

import os
import warnings

os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jieba

jieba.setLogLevel("WARNING")
#: What mkdocs.yml names, so that this module is imported.
NOTICE = ""
