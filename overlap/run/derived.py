"""What `derive(results)` of a snippet adds to what `main()` returned: it is computed, not measured.

It is computed anew for each run when pages are read, so it may be written, or changed, after the recording.
"""

import json
import pickle

from overlap import OverlapError
from overlap.run.meaning import DERIVE
from overlap.run.pure import function, raised_at
from overlap.run.snippet import Snippet
from overlap.run.text import unfit


class NotDerived(OverlapError):
    """A `derive` that fails, or gives what it must not."""


def derived(snippet: Snippet, result: dict, run: str) -> dict:
    """The keys that `derive` adds to the result of a run; `run` says which, for messages."""
    if DERIVE not in snippet.functions:
        return {}
    place = f"{snippet.path}:{snippet.functions[DERIVE][0]}"
    try:
        added = function(snippet, DERIVE)(pickle.loads(pickle.dumps(result)))
    except (Exception, SystemExit) as error:
        reason = f"derive() fails: {type(error).__name__}: {error}"
        remedy = "mend it; a run that is not the shown one has no trials and timelines"
        raise NotDerived(f"{raised_at(error, snippet)}: {reason} (on {run}); {remedy}") from None
    if not isinstance(added, dict):
        reason = f"derive() must return a dict, not {type(added).__name__}"
        raise NotDerived(f"{place}: {reason} (on {run}); return what it adds to the result, by key")
    twice = sorted(set(added) & set(result))
    if twice:
        reason = f"derive() returns {', '.join(twice)}, which main() has already"
        raise NotDerived(f"{place}: {reason} (on {run}); give it another name")
    try:
        return json.loads(json.dumps(added, allow_nan=False))
    except (TypeError, ValueError) as error:
        reason = f"{unfit(added, 'the result of derive()')} is no plain data: {error}"
        remedy = "return finite numbers, texts, lists and dicts"
        raise NotDerived(f"{place}: {reason} (on {run}); {remedy}") from None
