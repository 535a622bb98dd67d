/* Which symptoms fit a reader's words best: for the box of *Symptoms*, and for the search, into whose worker overlap/site/search.py
   copies this file. So both put the same row first. */

globalThis.overlapRank ??= (() => {
  /* British words as Americans spell them: of what is asked, and of what the search reads. */
  const american = text => text.replace(/((?:util|optim|synchron|parallel|initial|serial|quant|normal|vector|visual|minim|maxim)i)s(?![mt])/gi, "$1z")
    .replace(/(col|behavi|neighb|fav)our/gi, "$1or").replace(/\bcentre/gi, "center")

  /* A text as words: a name as pin_memory, and each of its parts. Multiple streams are several streams. */
  const several = text => american(text).replace(/\bmulti(?:ple)?\b/gi, "several")
  const wordsOf = text => several(text.toLowerCase()).match(/\p{sc=Han}+|[a-z\d]+(?:_+[a-z\d]+)*/gu)
    ?.flatMap(word => word.includes("_") ? [word, ...word.split(/_+/)] : [word]) ?? []

  /* Of a traceback its error, without the lines that PyTorch writes below each error of a kernel; no places in files. */
  const errorOf = text => text.replace(/^.*\b(?!ChildFailedError)(?=[A-Za-z.]*(?:Error|Exception|Warning|StopIteration): )/s, "")
    .replace(/(CUDA error: .*?\S)\s*(?:Search for .cudaError|CUDA kernel errors might be).*/is, "$1")
    .replace(/"?(?:[\w.~-]*[/\\])+[\w.-]*\.\w+"?(?::\d+)?/g, " ")

  /* What a reader asks with; of numbers only codes, of three digits or more. */
  const COMMON = new Set(  // as in the separator of mkdocs.yml
    "a all am an and are as at be but by can did do does doesn don for from has have how i if in is isn it its me my no of on or s should so t than that the this to vs was what when which why will with you your".split(" "))
  /* What tells little of what is asked: it counts less, and the search asks for no page that has it. */
  const WEAK = new Set("use uses used using several one worth help helps get gets then".split(" "))
  const telling = words => words.filter(word => !COMMON.has(word) && word.length > 1)
  const askedWith = text => {
    const words = wordsOf(errorOf(text)).filter(word => !/^\d{0,2}$|^\d+[a-z]+\d|^0x/.test(word))
    return [...new Set(telling(words).length ? telling(words) : words)]
  }

  /* A row of symptoms, of which readers see the first part of the title; behind it are other words for it. */
  const rowOf = (row, title, rest) => ({
    row, shown: wordsOf(title.split(/ · |\u2063/)[0]), title: wordsOf(title), rest: wordsOf(rest),
    items: title.split(/[,;:?·\u2063]| \/ /).map(item => [...new Set(telling(wordsOf(item)))]).filter(item => item.length),
  })

  /* Scores of all rows; those that have most of the words, the best first, and whether the best has enough: of a few words most, of a
     long message, in which much is of the reader's own program, a third. Each word counts the more the fewer rows have it, most in a title.
     A word of the reader's, without its ending, is the beginning of one of the row's. It counts a little more if it is that word, and if
     readers see it there. A row one of whose names has these words, and few others, comes before others. Chinese is not divided into words: where
     no row has a sentence, each two of its characters are looked for. */
  const ENDING = /(?<=.{6})(?:ing|e[sd]?|ations?)$/
  const ranked = (rows, text) => {
    const has = (words, asked) => /\p{sc=Han}/u.test(asked) ? words.some(word => word.includes(asked))
      : /^\d/.test(asked) ? words.includes(asked) : words.some(word => word.startsWith(asked.replace(/^[a-z]+$/, word => word.replace(ENDING, "")).replace(/(?<=[a-z]{3})s$/, "")))
    const scores = new Map(rows.map(({ row }) => [row, 0]))
    const shares = new Map(rows.map(({ row }) => [row, 0]))
    let all = 0
    const pairs = asked => /^\p{sc=Han}{3}/u.test(asked) && !rows.some(({ title, rest }) => has(title, asked) || has(rest, asked))
      ? [...asked].slice(1).map((last, i) => [...asked][i] + last) : [asked]
    const weights = new Map()
    for (const asked of new Set(askedWith(text).flatMap(pairs))) {
      const itself = words => words.includes(asked) || words.includes(`${asked}s`)
      const parts = rows.map(({ shown, title, rest }) => has(title, asked) ? 1.5 + 0.1 * itself(title) + 0.1 * itself(shown) : has(rest, asked) ? 1 : 0)
      const weight = Math.log(1 + rows.length / Math.max(1, parts.filter(Boolean).length)) * (WEAK.has(asked) ? 0.3 : 1)
      weights.set(asked, weight)
      all += weight
      rows.forEach(({ row }, i) => {
        if (!parts[i]) return
        scores.set(row, scores.get(row) + parts[i] * weight)
        shares.set(row, shares.get(row) + weight)
      })
    }
    const ofWeight = words => words.reduce((sum, word) => sum + weights.get(word), 0)
    const near = item => {
      const found = [...weights.keys()].filter(asked => asked.length > 1 && has(item, asked))
      return (ofWeight(found) / all) ** 2 * Math.min(1, found.length / item.length)
    }
    if (weights.size <= 8) for (const { row, items } of rows) if (shares.get(row)) scores.set(row, scores.get(row) + 0.5 * all * Math.max(0, ...items.map(near)))
    const sorted = [...scores].sort((one, other) => other[1] - one[1]), [first, best] = sorted[0], share = shares.get(first) / all
    const known = share >= 0.6 || share >= 0.3 && best >= 20
    return { known, scores, chosen: sorted.filter(([, score], i) => score > (i < 5 ? 0.25 : 0.5) * best).map(([row]) => row).slice(0, known ? undefined : 3) }
  }

  return { askedWith, errorOf, american, several, rowOf, ranked, WEAK, ENDING }
})()
