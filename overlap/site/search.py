"""What the theme's search reads and finds: entries as documents of their own, Chinese in both scripts."""

import json
import re
from functools import cache
from pathlib import Path

import opencc
from mkdocs.plugins import get_plugin_logger

from overlap.site.quiet import jieba

log = get_plugin_logger("overlap")

#: Words that jieba does not know. It cuts 多卡比单卡慢 into 多, 卡比, 单卡 and 慢.
for word in ("多卡", "加速比"):
    jieba.add_word(word, freq=10_000)

#: What search reads in another way than a browser: it knows paragraphs, and shows those that have the words.
_READ = [
    (re.compile(pattern), words)
    for pattern, words in (
        # of a checked statement its sentence, without the expression and the verdicts
        (r'(?s:<thead><tr><th scope="col">claim</th>.*?</thead>)', ""),
        (r"(<tr data-key=(?s:(?!</tr>).)*?</a>) <code\b[^>]*>(?s:.*?)</tr>", r"\1</th></tr>"),
        (r"<(/?)th\b", r"<\1td"),
        (r"</td>\s*<td\b[^>]*>", " | "),
        (r"<tr\b[^>]*>", "<p>"),
        (r"</tr>", "</p>"),
        (r"<(?=(?:br|small)\b)", " <"),
        (r'</p>\s*<p class="ov-also">', " "),
        (r'</p>\s*<p data-label="[^"]*">', ". "),
        (r'<a class="headerlink"[^>]*>.*?</a>', ""),
        # other words for a symptom, which the page does not show: where a result's title ends
        (r'<span class="ov-words"[^>]*>(.*?)</span>', "\u2063\\1"),
        (r"\s+(?=<\w+[^>]* data-search-exclude)", ""),
        # else what stands in a row is no part of its section
        (r'<details class="ov-row">\s*<summary>((?s:.*?))</summary>', r"\1"),
    )
]
#: How much an entry weighs, which has few words, beside a page.
_WEIGHT = 0.8
_HAN = re.compile("[\u4e00-\u9fff]+")

#: The worker of the theme's search (Material 9.7), and what it should say.
MENDED = [
    # lunr takes two states of its index for one if their letters and numbers, run together, read the same, as
    # 1, 23 and 12, 3: with one such pair a query that begins with its digit finds nothing. A space ends each.
    ("+o.id}return", "+o.id+' '}return"),
    # A query in Chinese is cut into words of the index, and its last character was never looked at.
    ("o=s+1;o<t.length;o++)t.slice(s,o)in e", "o=s+1;o<=t.length;o++)t.slice(s,o)in e"),
    # Nor was a last word of one character.
    ("n[a]&&a<t.length-1&&", "n[a]&&a<t.length&&"),
    # Words of such a query are looked for as beginnings, too; one that is in the index is that word.
    ('.join("* ")', '.map(w=>w in this.index.invertedIndex?w+"^1":w+"*").join(" ")'),
    # Each word of a query is looked for as a beginning; a number is not: 0 begins most of them.
    (r"/(^[+-]|[~^]\d+$)/", r"/(^[+-]|[~^]\d+$|^\d+$)/"),
    # Of a traceback its error is looked for. What half of the book's names begin with tells nothing, nor does
    # a single digit, nor a code as -9, whose minus excluded 9. Words in quotation marks must all be there;
    # not so a name in marks, nor what a sentence or an error has in marks.
    (
        "search(e){if(e=e.replace(",
        r"search(e){let asked=e,rank=globalThis.overlapRank;e=rank?.american(rank.errorOf(e))??e;"
        r'e=e.replace(/\btorch\.cuda\.(?=\w)|(?<!\S)(?:\d(?!\S)|-\d+)/g,"");'
        r"""/^\s*"[^"]*\s[^"]*"\s*$/.test(e)||(e=e.replace(/"/g," "),e=rank?.several(e)??e);"""
        r"let names=this.names(e),han=/\p{sc=Han}/u.test(e);if(e=e.replace(",
    ),
    # British and American spelling are one: the index has the American one, and rank.js asks with it.
    (
        'this.ref("location");for(',
        'this.ref("location");let us=t=>t.update(w=>globalThis.overlapRank?.american(w)??w);'
        'lunr.Pipeline.registerFunction(us,"american");this.pipeline.add(us);for(',
    ),
    # A name as channels_last is one word, although its parts are found, too: where these do not stand
    # together, they are none of the words that were asked for.
    (
        "let c=this.map.get(o);if(typeof c!=",
        "let c=this.map.get(o),lacks=names.filter(w=>!this.has(c,w)).flatMap(w=>w.split(/_+/));if(typeof c!=",
    ),
    (
        "let f=he(r,Object.keys(u.metadata));",
        "let f=he(r,Object.keys(u.metadata));for(let w of lacks)w in f&&(f[w]=!1);"
        "let all={...f};for(let w in f)f[w]||Object.keys(f).length<2||"
        "!globalThis.overlapRank?.WEAK.has(w)||delete f[w];",
    ),
    # A word, but no part of a name, is looked for without its ending: recompiling finds what recompiles. What
    # a result lacks is shown as it was typed. A word that begins none of the book's may have one letter too
    # many, too few, wrong or in a wrong place. A site without *Symptoms* has no rank.js.
    ("e=ce(e),!e)return{items:[]}", "e=this.spelled(this.cut(ce(e),names.join('_'))),!e)return{items:[]}"),
    (
        "var de;function",
        "Object.assign(U.prototype,{"
        "rows(){return this.known??=[...this.map].filter(([row])=>row.startsWith('symptoms/?entry='))"
        ".map(([row,{title,text}])=>"
        "overlapRank.rowOf(row,...[title,text].map(l=>l.replace(/<[^>]*>/g,' '))))},"
        "ranked(e,s){let o='symptoms/?entry=',u=s.filter(a=>a.location.startsWith(o));"
        r"if(!globalThis.overlapRank||u.length<2||/\p{sc=Han}/u.test(e))return s;"
        "let{scores:c}=overlapRank.ranked(this.rows(),e);u.sort((a,l)=>c.get(l.location)-c.get(a.location));"
        "return s.map(a=>a.location.startsWith(o)?u.shift():a)},"
        r'has(c,w){return RegExp(w.replace(/_+/g,"[^a-z\\d]*"),"i").test(c.title+" "+c.text)},'
        r'titled(o,f){let t=this.map.get(o).title.split("\u2063")[0].replace(/<[^>]*>/g,"").toLowerCase(),'
        r"v=globalThis.overlapRank?.american(t)??t;"
        r"return Math.max(...[v,...v.split(/\?\s+/)].map(t=>this.said(t,f)))},"
        r"said(t,f){let "
        r"n=l=>[...new Set(l)].filter(s=>/^[a-z\d]/.test(s)&&lunr.stopWordFilter(s)),"
        r"w=n(t.match(/[\p{L}\d]+/gu)||[]),k=n(Object.keys(f));"
        "return(k.length>1||w.length===1)&&k.length>.75*w.length&&"
        'k.every(l=>f[l]&&w.some(s=>s.startsWith(l.replace(/s$/,""))))?9:1},'
        r"cut(e,n){this.typed={};return e.replace(/(?<!\S)[a-z]{7,}(?=\*(?!\S))/gi,"
        "w=>{let l=w.toLowerCase();if(n.split(/_+/).includes(l))return w;"
        "l=l.replace(globalThis.overlapRank?.ENDING??'','');"
        "this.typed[l]??=w;return l})},"
        r"names(e){return e.toLowerCase().match(/[a-z\d]+(?:_+[a-z\d]+)+/g)||[]},"
        r'spelled(e){if(e.split(" ").length>4)return e;let i=this.index,t=i.invertedIndex,'
        "n=w=>i.fields.reduce((s,l)=>s+Object.keys(t[w][l]||{}).length,0);"
        r"return e.replace(/(?<!\S)[a-z]{4,}(?=\*(?!\S))/gi,w=>{w=w.toLowerCase();"
        "if(Object.keys(t).some(l=>l.startsWith(w)))return w;"
        "let[l]=i.tokenSet.intersect(lunr.TokenSet.fromFuzzyString(w,1)).toArray().sort((s,o)=>n(o)-n(s));"
        "return l||w})}});var de;function",
    ),
    # A result with one of five words came before one with all, if that word is rare. The share of the words
    # that it has counts twice; what has less than half as many of them as the best is not listed.
    (
        "let g=+!c.parent+Object.values(f).filter(l=>l).length/Object.keys(f).length;",
        "let h=Object.values(f).filter(l=>l).length/Object.keys(f).length,g=+!c.parent+h;",
    ),
    # A title that has all words, and few others, comes first. A question in Chinese is for a symptom before a
    # chapter. Nor does a title show the other words for a symptom, by which it was found.
    (
        "{score:a*(1+K(g,2)),terms:f}",
        r'{score:a*(1+K(g,2))*K(h,2)*this.titled(o,all)*(han&&h>=.4&&o.includes("entry=")?4:1),'
        "share:h,terms:Object.fromEntries(Object.entries(f).map(([l,v])=>[!v&&this.typed[l]||l,v])),"
        r'title:c.title.split("\u2063")[0]}',
    ),
    (
        "},[]).sort((s,o)=>o.score-s.score)",
        "},[]).filter((s,o,u)=>(s.share||!names.length)&&2*s.share>=(u.best??=Math.max(...u.map(l=>l.share)))).sort((s,o)=>o.score-s.score))",
    ),
    # Symptoms keep their places among the results, and stand in them as the box of *Symptoms* scores them.
    # Words as *use* and *several* count little, and nothing where they are missing: a chapter about streams
    # is for several streams.
    (
        "n=this.index.search(e).reduce(",
        "n=this.ranked(asked,this.index.query(q=>{new lunr.QueryParser(e,q).parse();"
        r"for(let c of q.clauses)globalThis.overlapRank?.WEAK.has(c.term.replace(/\*$/,''))&&(c.boost=.3)"
        "}).reduce(",
    ),
]


class Search:
    """What the theme's search is given of the pages of a site, and what is mended behind it."""

    def __init__(self):
        #: The ids of symptoms and terms, by the address of their page.
        self.entries: dict[str, set[str]] = {}
        self._content = ""

    def give(self, page, entries: set[str]) -> None:
        """Let search read a page, with these entries, in its own way; then `take_back`."""
        self._content = page.content
        self.entries[page.url] = entries
        page.content = readable(page.content)

    def take_back(self, page) -> None:
        """Let readers have the page as it was."""
        page.content = self._content

    def mend(self, site: Path) -> None:
        """Mend the search of a built site."""
        mend(site, self.entries)


def readable(html: str) -> str:
    """A page as search should read it."""
    for pattern, words in _READ:
        html = pattern.sub(words, html)
    return html


def mend(site: Path, entries_of: dict[str, set[str]]) -> None:
    """Mend the worker of a built site, and make each entry a document of its own.

    The theme shows one result for a page, and hides its other sections. `entries_of`: ids by page address.
    """
    rank = site / "assets/rank.js"
    for worker in site.glob("assets/javascripts/workers/search.*.js"):
        text = worker.read_text(encoding="utf-8")
        if rank.exists() and "overlapRank" not in text:
            text = rank.read_text(encoding="utf-8") + text
        for wrong, right in MENDED:
            if wrong not in text and right not in text:
                log.info(f"{worker.name}: the theme's search has changed: {wrong!r} is not there")
            text = text.replace(wrong, right)
        worker.write_text(text, encoding="utf-8")
    path = site / "search/search_index.json"
    if not path.exists():
        return
    index = json.loads(path.read_text(encoding="utf-8"))
    for document in index["docs"]:
        page, _, anchor = document["location"].partition("#")
        if anchor in entries_of.get(page, ()):
            document |= {"location": f"{page}?entry={anchor}", "boost": _WEIGHT}
        other = _in_other_scripts(f"{document['title']} {document['text']}")
        if other:
            document["other"] = other
    index["config"]["fields"]["other"] = {"boost": 1.0}  # searched, but no part of what a result shows
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _in_other_scripts(text: str) -> str:
    """The Chinese words of a text as they are written in Taiwan and in Hong Kong, where they differ."""
    words: dict[str, None] = {}
    for phrase in _HAN.findall(text.replace("\u200b", "")):
        for script in ("s2twp", "s2hk"):
            other = _converter(script).convert(phrase)
            if other != phrase:
                words[other] = None
    return " ".join("\u200b".join(jieba.cut(word)) for word in words)


@cache
def _converter(script: str) -> opencc.OpenCC:
    return opencc.OpenCC(script)
