"""Imported by mkdocs.yml before the theme is: the README says what Material's notice says."""

import os

os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
#: What mkdocs.yml names, so that this module is imported.
NOTICE = ""
