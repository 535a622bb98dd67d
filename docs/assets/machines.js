/* Machines. A page is built with what one machine gave, and shows it without scripts. The picker in the header puts what
   another one gave in the same places, by key: a machine is a file, generated/machines/NAME.json. The reader's own is one
   more, from the file mine.json that overlap.pyz wrote, kept in this browser; nothing is sent. Whatever a file holds is text
   and numbers: it arrives as textContent. A place that has changed says so by the event "ov-shown". */

(() => {
  const PICKED = "overlap.machine", MINE = "overlap.mine"
  const ROOT = new URL("../", document.currentScript.src)
  const { translated } = window.overlapWords  // from words.js
  const { overlapMachines: machines = [], overlapMarks: marks, overlapDecisive: decisive, overlapNoRate: noRate } = window  // from generated/machines.js
  const find = machine => machines.find(each => each.name === machine)
  const isMine = machine => machine.startsWith("my:")
  const of = (map, key) => Object.hasOwn(map ?? {}, key) ? map[key] : undefined
  const isChinese = () => document.documentElement.lang === "zh"
  const all = (selector, place = document) => [...place.querySelectorAll(selector)]

  // The reader's own machines

  /* What a file says, without its recordings; an Error says in a sentence why it is refused. */
  const read = written => {
    let data
    try {
      data = JSON.parse(written)
    } catch {
      throw new Error("The file is damaged or cut off: it is not JSON.")
    }
    const isMap = value => value !== null && typeof value === "object" && !Array.isArray(value)
    if (!Number.isInteger(data?.overlap)) throw new Error("This is no mine.json that overlap.pyz wrote.")
    if (data.digest !== window.overlapDigest) {
      throw new Error("The file is of another edition of this book. Download overlap.pyz again, and run it where the file is: only what has changed runs again.")
    }
    const { machines: own, lacks } = data
    if (!Object.keys(own ?? {}).length) throw new Error("The file is not finished. Repeat the command: it goes on where it was stopped.")
    const isWhole = Object.values(own).every(machine => isMap(machine) && window.overlapParts.every(part => isMap(machine[part])))
    if (!isWhole || !isMap(lacks)) throw new Error("The file was changed or damaged: parts that overlap.pyz writes are missing. Repeat the command.")
    return { overlap: data.overlap, digest: data.digest, machines: own, lacks }
  }

  let mine = null, refused = ""
  const keep = localStorage.getItem(MINE)
  try {
    if (keep !== null) mine = read(keep)
  } catch (error) {
    refused = error.message
  }
  const own = Object.entries(mine?.machines ?? {}).map(([name, { label }]) => ({ name: `my:${name}`, label }))
  machines.push(...own)

  // What a machine gave

  const files = new Map()
  const load = machine => {
    if (isMine(machine)) return Promise.resolve(of(mine.machines, machine.slice(3)))
    if (!files.has(machine)) {
      const file = fetch(new URL(`generated/machines/${machine}.json`, ROOT)).then(answer => {
        if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`)
        return answer.json()
      })
      files.set(machine, file)
      file.catch(() => files.delete(machine))
    }
    return files.get(machine)
  }

  /* Its run of a snippet with the machine that it is from: this one, or one that gave what this one would give, too. */
  const runOf = async (machine, name) => {
    const run = of((await load(machine))?.snippets, name)
    if (typeof run !== "string") return run && { ...run, machine }
    const source = isMine(machine) ? `my:${run}` : run, lent = of((await load(source))?.snippets, name)
    return lent && typeof lent !== "string" ? { ...lent, machine: source } : undefined
  }

  /* Copies of what the page's <template> has. */
  const parts = () => document.querySelector(".ov-parts")
  const part = selector => parts().content.querySelector(selector).cloneNode(true)
  const texts = (element, selector, words) => all(selector, element).forEach((place, i) => { place.textContent = words[i] ?? "" })

  const tableOf = ({ headings, rows }) => {
    const table = part("table"), [named, cells] = table.tBodies[0].rows
    const fill = (row, words) => {
      const [cell] = row.cells
      row.replaceChildren(...words.map(text => Object.assign(cell.cloneNode(), { textContent: text })))
      return row
    }
    fill(table.tHead.rows[0], headings)
    table.tBodies[0].replaceChildren(...rows.map(words => fill((words.length === 1 ? named : cells).cloneNode(true), words)))
    for (const name of all("[colspan]", table)) name.colSpan = headings.length
    return table
  }

  const outputOf = ([rank, look, text]) => {
    const title = part(".ov-rank"), output = part("pre")
    title.textContent = rank
    output.className = `ov-text ${look}`.trim()
    output.textContent = text
    return rank ? [title, output] : [output]
  }

  const address = path => path && new URL(path, ROOT).href

  const pictureOf = (figure, { pictures, timelines }) => {
    const english = of(pictures, figure.dataset.part ?? ""), chinese = isChinese() ? english?.zh : undefined
    return { timelines, ...english, ...chinese, isChinese: Boolean(chinese) }
  }

  /* Beside another machine it stands on axes that have room for both; where these are its own, that is no other file. */
  const putDrawing = (figure, name, machine, picture, isCompared = false) => {
    const which = figure.dataset.part ?? "", image = figure.querySelector("img"), source = figure.querySelector("source")
    for (const [element, attribute, form] of [[image, "src", "wide"], [source, "srcset", "narrow"]]) {
      const variant = isCompared && picture.sizes[`${form}-compared`] ? `${form}-compared` : form
      const [width, height] = picture.sizes[variant]
      const file = `generated/pictures/${machine}/${name}${which && "-"}${which}-${variant}${picture.isChinese ? ".zh" : ""}.svg`
      element.setAttribute(attribute, isMine(machine) ? `data:image/svg+xml,${encodeURIComponent(picture[variant])}` : address(file))
      element.setAttribute("width", width)
      element.setAttribute("height", height)
    }
  }

  const fillFigure = (figure, name, run) => {
    const picture = pictureOf(figure, run), { machine } = run
    if (!picture.sizes?.wide) return figure.remove()
    putDrawing(figure, name, machine, picture)
    figure.querySelector("img").alt = picture.alt
    figure.dataset.timelines = isMine(machine) ? "" : address(picture.timelines)
    if (!figure.dataset.timelines) figure.querySelector(".ov-explorable")?.remove()
  }

  /* In how long a run was made, and by which versions, is told when a reader asks. */
  document.addEventListener("toggle", async ({ target }) => {
    const told = target.matches(".ov-provenance[open]") && target.querySelector("p > span:empty")
    if (!told) return
    const run = await runOf(target.closest(".ov-run").dataset.machine, target.closest(".ov-part").dataset.name).catch(missing)
    if (run) told.textContent = `${run.provenance} · `
  }, true)

  /* Tables of numbers are made when a reader asks for them. */
  const fillNumbers = async views => {
    if (!views?.querySelector(".ov-choice [value=numbers]:checked")) return
    for (const place of all(".ov-part", views)) {
      const run = await runOf(place.closest(".ov-run").dataset.machine, place.dataset.name)
      for (const figure of all(".ov-figure", place)) {
        const box = figure.querySelector(".ov-numbers"), picture = of(run?.pictures, figure.dataset.part ?? "")
        if (!box || !picture || box.querySelector("table")) continue
        box.prepend(...picture.tables.map(tableOf))
        const more = box.querySelector(".ov-more")
        more.hidden = !picture.more
        more.textContent = translated("{0} more in the raw recording.", picture.more)
      }
    }
  }
  document.addEventListener("change", ({ target }) => {
    if (target.matches(".ov-choice [value=numbers]")) fillNumbers(target.closest(".ov-views")).catch(missing)
  })

  const fill = (place, run) => {
    const name = place.dataset.name, printed = place.querySelector(".ov-printout"), isOwn = isMine(run.machine)
    for (const figure of all(".ov-figure", place)) fillFigure(figure, name, run)
    if (!printed) return
    const several = printed.querySelector(".ov-several"), from = place.querySelector(".ov-provenance")
    printed.replaceChildren(...run.outputs.flatMap(outputOf), several)
    several.hidden = !(run.runs > 1)
    several.querySelector("span").textContent = run.runs
    from.querySelector("summary").textContent = run.line
    from.querySelector("p > span").textContent = `${run.provenance}${isOwn ? "" : " · "}`
    from.querySelector(".ov-raw").hidden = isOwn
    from.querySelector(".ov-raw a").href = isOwn ? "" : address(run.raw)
    const trace = from.querySelector(".ov-trace")
    if (!trace) return
    if (isOwn || !run.trace) return trace.remove()
    trace.querySelector("a").href = trace.querySelector(".ov-perfetto").dataset.trace = address(run.trace)
  }

  // Places of a page: each is remembered as it was built, and goes back to that where a machine has nothing for it

  const built = new WeakMap()
  const inert = document.createElement("template").content
  const remember = (places, as) => places.forEach(place => built.has(place) || built.set(place, as(place)))

  const CELLS = ".md-content :is(td, th, .ov-chapters p)"
  const OUTPUTS = ".ov-outputs", VALUES = ".md-content :is(data, .ov-value)"
  /* By this a machine has what it gave in the place of a value, or "@" and the machine that a value is of alone; and of a claim. */
  const keyOf = value => value.value ?? value.dataset.key
  const isPinned = value => keyOf(value).startsWith("@")
  const keyOfMark = mark => mark.dataset.key ?? mark.hash.slice(1)
  /* Blocks that have, as JSON, what the shown machine gave: their own script takes it when they say "ov-shown". */
  const BLOCKS = ".md-content [data-given]"
  const runIn = box => inert.ownerDocument.importNode(box.firstElementChild, true)
  const copy = box => document.importNode(built.get(box), true)
  const valueIn = value => ({
    machine: isPinned(value) ? keyOf(value).slice(1) : machines.find(({ label }) => label === value.dataset.on)?.name ?? firstOf(),
    said: [value.firstChild?.data ?? "", value.querySelector(".ov-range")?.textContent ?? "", value.dataset.note],
  })

  /* Where a machine's value is from, in the language of the page. */
  const noteOf = (data, key) => (isChinese() ? of(data?.zh, key) : undefined) ?? of(data?.values, key)?.[2]

  const putValue = (value, [text, range], note) => {
    const small = document.createElement("small")
    small.className = "ov-range"
    small.textContent = range
    value.replaceChildren(text, ...range ? [small] : [])
    note === undefined ? delete value.dataset.note : value.dataset.note = note
  }

  /* A value is told where it is from when a reader points at it. */
  const tellNote = async ({ target }) => {
    const value = target.closest?.(":is(data, .ov-value):not([data-note])")
    if (!value || !built.has(value)) return
    const { machine } = built.get(value), note = noteOf(await load(machine).catch(missing), keyOf(value))
    if (note) value.dataset.note ??= note
  }
  /* A verdict in the table of claims tells its figures then. */
  const tellFigures = async ({ target }) => {
    const cell = target.closest?.("tr[data-key] .ov-cell:not([data-note])")
    if (!cell) return
    const row = cell.closest("tr"), head = row.closest("table").tHead.rows[0].cells[cell.closest("td").cellIndex]
    const data = await load(head.dataset.machine).catch(missing), verdict = of(data?.claims, row.dataset.key)
    if (verdict) cell.dataset.note = `${data.label}: ${verdict[1]}`
  }
  for (const event of ["pointerover", "focusin"]) for (const tell of [tellNote, tellFigures]) document.addEventListener(event, tell)

  /* What a machine gave in the place of an output; nothing where it has not run there. */
  const drawn = async (box, machine) => {
    const made = copy(box), places = all(".ov-part", made)
    const runs = await Promise.all(places.map(place => runOf(machine, place.dataset.name)))
    const lacks = figure => !of(runs[places.indexOf(figure.closest(".ov-part"))].pictures, figure.dataset.part)
    if (!runs.every(Boolean) || all("[data-part]", made).some(lacks)) return null
    made.querySelector(".ov-elsewhere")?.remove()
    if (runs[0].machine === made.dataset.machine) return made
    made.dataset.machine = runs[0].machine
    places.forEach((place, i) => fill(place, runs[i]))
    return made
  }

  /* What is shown where this machine has not run, or has no such picture, as one GPU has no all-reduce: the nearest that has,
     by select.py, or what the page has; and why. */
  const stayed = async (box, wanted) => {
    const { name } = built.get(box).querySelector(".ov-part").dataset, near = of((await load(wanted))?.nearest, name)
    const made = near && await drawn(box, near) || copy(box), note = part(".ov-elsewhere")
    const why = isMine(wanted) && of(mine.lacks, name)
    if (await runOf(wanted, name)) note.querySelector("small").firstChild.data = parts().dataset.ran
    texts(note, "span", [find(wanted).label + (why ? ` (${why})` : ""), find(made.dataset.machine).label])
    made.querySelector(".ov-elsewhere")?.remove()
    made.prepend(note)
    return made
  }

  /* What stands in the place of an output: what a machine gave or what the page has, and what another one gave. */
  const drawings = async (box, wanted) => {
    const run = wanted === firstOf() ? copy(box) : await drawn(box, wanted) ?? await stayed(box, wanted)
    const other = all(".ov-machines select", box.parentElement)[1]?.value
    const second = other && other !== run.dataset.machine && await drawn(box, other)
    if (!second) return [run]
    for (const each of [run, second]) {
      for (const figure of all(".ov-figure", each)) {
        const { name } = figure.closest(".ov-part").dataset, made = await runOf(each.dataset.machine, name)
        const picture = made && pictureOf(figure, made)
        if (picture?.sizes) putDrawing(figure, name, made.machine, picture, true)
      }
    }
    return [run, second]
  }

  /* A sentence about one machine names it, or says only of how many GPUs of the picked model it speaks. */
  const isTold = (value, machine, wanted) => {
    const { model, called } = find(machine)
    if (model === find(wanted).model) return true
    const table = value.closest("table"), before = (table?.closest(".md-typeset__scrollwrap") ?? table)?.previousElementSibling
    const place = table ?? value.closest("p, li, dd") ?? value
    const told = `${before?.textContent} ${place.textContent}`
    return called.every(name => told.includes(name))
  }

  /* The machine of a page: the one that the line below its title names, else the picked one. */
  const machineOf = wanted => document.querySelector(".ov-here")?.textContent ?? find(wanted).label

  /* Values of another machine than the page's name it. In a table and on a card the number is first, so that the name stands
     behind all that the cell or the card says; what a table's head names, its rows do not repeat. */
  const putValues = (data, wanted) => {
    const usual = machineOf(wanted)
    for (const run of all(`${OUTPUTS} > .ov-run`)) {
      const { label } = find(run.dataset.machine)
      label === usual || run.querySelector(".ov-elsewhere") ? delete run.dataset.on : run.dataset.on = label
    }
    for (const cell of all(CELLS)) delete cell.dataset.on
    for (const value of all(VALUES)) {
      const { machine, said } = built.get(value), here = of(data?.values, keyOf(value))
      if (here || changed) putValue(value, here ?? said, here ? noteOf(data, keyOf(value)) : said[2])
      delete value.dataset.on
      if (isPinned(value) && isTold(value, machine, wanted)) continue
      const name = here ? here[3] ?? find(wanted).label : find(machine).label
      const head = value.closest("tbody td, tbody th")?.closest("table").querySelector("thead [data-on]")?.dataset.on ?? usual
      if (name === head) continue
      const cell = value.closest(CELLS)
      if (!cell) value.dataset.on = name
      else if (!cell.dataset.on?.split(", ").includes(name)) cell.dataset.on = cell.dataset.on ? `${cell.dataset.on}, ${name}` : name
    }
  }

  const say = box => box.dispatchEvent(new CustomEvent("ov-shown", { bubbles: true }))
  /* What the pictures of a run show, as data. */
  const drawnIn = run => Promise.all(all(".ov-figure", run).map(async figure => {
    const { pictures } = await runOf(run.dataset.machine, figure.closest(".ov-part").dataset.name)
    return of(pictures, figure.dataset.part ?? "")
  }))
  const areAlike = ({ axes }, { axes: others }) => axes.length === others.length && axes.every(([low, high], at) =>
    [low - others[at][0], high - others[at][1]].every(apart => Math.abs(apart) < 0.03 * (high - low)))

  /* Two pictures beside each other that are the same look as if the comparison had failed; on different axes, lengths compare nothing.
     Machines with as many GPUs then share their axes. */
  const compared = async runs => {
    const drawn = await Promise.all(runs.map(drawnIn)), [one, other] = drawn
    const [said, saidThere] = drawn.map((pictures, at) => JSON.stringify(pictures.map(({ alt, tables }) => [alt.replaceAll(runs[at].dataset.label, ""), tables])))
    const isSame = one.length > 0 && said === saidThere
    const box = runs[0].parentElement, caption = box?.closest(".ov-snippet")?.nextElementSibling, sentences = []
    if (isSame) sentences.push(translated("Both machines gave the same: the two pictures do not differ."))
    else if (!one.every((picture, at) => areAlike(picture, other[at]))) {
      sentences.push(translated("The two pictures have different axes: compare the numbers, not the lengths."))
    }
    if (!isSame && caption?.matches(".ov-caption:has(data)")) {
      sentences.push(translated("The numbers in the caption are those of {0}.", runs[0].dataset.label))
    }
    if (!sentences.length) return
    const told = document.createElement("p")
    told.className = "ov-compared"
    told.textContent = sentences.join(isChinese() ? "" : " ")
    box?.prepend(told)
  }

  const putOutput = (box, runs) => {
    box.classList.toggle("ov-two", runs.length > 1)
    for (const run of runs) run.dataset.label = find(run.dataset.machine).label
    box.replaceChildren(...runs)
    if (runs.length > 1) compared(runs).catch(() => null)  // files that cannot be read are not compared
    fillNumbers(box.closest(".ov-views")).catch(missing)
    say(box)
  }

  const putBlocks = data => {
    for (const block of all(BLOCKS)) {
      const given = of(data?.blocks, block.dataset.key)
      block.dataset.given = given ? JSON.stringify(given) : built.get(block)
      say(block)
    }
  }

  /* The lines below the title. */
  const putHead = (data, wanted) => {
    const head = document.querySelector(".ov-head"), line = document.querySelector(".ov-switch")
    if (!head) return
    const later = all(".ov-later[data-names]"), shown = all(`${OUTPUTS} > :first-child`)
    /* Where an output that has not come yet is from; nothing if the picked machine has not run it. */
    const source = place => {
      const { names, elsewhere } = place.dataset
      if (wanted === firstOf()) return elsewhere === undefined ? sourceOf(place) : undefined
      const runs = names.split(" ").map(name => of(data?.snippets, name))
      return runs.every(Boolean) ? typeof runs[0] === "string" ? (isMine(wanted) ? "my:" : "") + runs[0] : wanted : undefined
    }
    const lender = place => of(data?.nearest, place.dataset.names.split(" ")[0]) ?? sourceOf(place)
    const notes = all(`${OUTPUTS} > .ov-run > .ov-elsewhere`), lacking = later.filter(place => !source(place))
    const others = notes.length + lacking.length
    const ran = [...shown.map(run => run.dataset.machine), ...later.map(place => source(place) ?? lender(place))]
    /* Who picked GPUs is not told of a CPU, though most of the page ran on no GPU. */
    const gpus = machine => !/^(my:)?cpu\b/.test(machine)
    const count = machine => ran.filter(other => other === machine).length + (gpus(machine) && gpus(wanted) ? ran.length : 0)
    const most = [...ran].sort((a, b) => count(b) - count(a))
    const programs = new Set([...shown.flatMap(run => all(".ov-part", run).map(part => part.dataset.name)), ...later.flatMap(place => place.dataset.names.split(" "))])
    const own = [...programs].filter(name => of(data?.snippets, name))
    const isHere = !ran.length || ran.includes(wanted)
    const isFew = isHere && wanted !== firstOf() && 2 * own.length < programs.size
    /* Numbers of the picked machine need no name wherever it has some, however few. */
    const here = find(isHere ? wanted : most[0]).label
    head.querySelector(".ov-here").textContent = here
    const opens = line.querySelector(".ov-opens"), absent = line.querySelector(".ov-absent"), few = line.querySelector(".ov-few")
    const lentLine = document.querySelector(".ov-lent"), several = lentLine.querySelector(".ov-others"), single = lentLine.querySelector(".ov-one-other")
    opens.hidden ||= Boolean(chosen())
    const lent = new Set([...notes.map(note => sourceOf(note.parentElement)), ...lacking.map(lender)])
    absent.hidden = isHere
    if (!isHere) texts(absent, "span", [find(wanted).label, [...new Set(most)].map(machine => find(machine).label).join(", ")])
    few.hidden = !isFew
    if (isFew) {
      const { label } = find(wanted), counted = isChinese() ? [programs.size, own.length] : [own.length, programs.size]
      texts(few, "span", [...counted, label === "CPU" && !isChinese() ? "a CPU" : label])
    }
    several.hidden = !isHere || lent.size < 2
    single.hidden = !isHere || lent.size !== 1 || find([...lent][0]).label === here
    texts(several, "span", [others])
    if (lent.size === 1) {
      const counted = isChinese() ? [others] : others === 1 ? ["One", "comes"] : [others, "come"]
      texts(single, "span", [...counted, find([...lent][0]).label])
    }
    line.hidden = opens.hidden && absent.hidden && few.hidden
    lentLine.hidden = several.hidden && single.hidden
    /* Said there, it need not be said at each, unless that says why. */
    for (const note of notes) note.classList.toggle("ov-said", lent.size === 1 && !note.textContent.includes("("))
  }

  /* Now the page can be painted. */
  const done = machine => {
    document.documentElement.dataset.machine = machine
    document.documentElement.classList.remove("ov-waiting")
  }

  /* The page as it was built needs nothing. */
  let current = "", changed = false
  const apply = async (wanted, boxes = all(OUTPUTS)) => {
    const first = firstOf()
    let data = null, runs = []
    current = wanted
    try {
      if (wanted !== first) data = await load(wanted)
      if (wanted !== first || changed) runs = await Promise.all(boxes.map(box => drawings(box, wanted)))
    } catch (error) {
      return missing(error)
    }
    if (current !== wanted || !boxes.every(box => box.isConnected)) return
    runs.forEach((each, i) => putOutput(boxes[i], each))
    if (wanted !== first || changed) putBlocks(data)
    putHead(data, wanted)
    putValues(data, wanted)
    changed ||= wanted !== first
    for (const row of all(".ov-evidence li")) row.classList.toggle("ov-picked", row.dataset.machine === wanted)
    boxes.forEach(offer)
    done(wanted)
  }

  /* Outputs of a row that came just now. */
  document.addEventListener("ov-filled", ({ target }) => {
    const boxes = all(OUTPUTS, target)
    remember(boxes, runIn)
    boxes.forEach(controls)
    if (current) apply(current, boxes)
  })

  // The picker

  /* What the page opens on, or else the book. */
  const firstOf = () => document.querySelector(".ov-head")?.dataset.first ?? machines.find(each => each.first)?.name
  /* What a place is of: it says so where it is not what the page opens on. */
  const sourceOf = ({ dataset: { machine } }) => machine ?? firstOf()
  /* What the address asks for, or what this browser remembers. */
  const chosen = () => [new URLSearchParams(location.search).get("machine"), localStorage.getItem(PICKED)].find(machine => machine && find(machine))

  const select = () => document.querySelector(".ov-picker select")
  const pick = machine => {
    const url = new URL(location.href)
    localStorage.setItem(PICKED, machine)
    if (url.searchParams.has("machine")) {
      url.searchParams.set("machine", machine)
      history.replaceState(history.state, "", url)
    }
    if (select()) select().value = machine
    return apply(machine)
  }

  /* Opened as a file, or without the net, a page keeps its machine. */
  const missing = error => {
    const shown = document.documentElement.dataset.machine ?? firstOf()
    done(current = shown)
    if (!select()) return
    select().value = shown
    select().closest("label").title = translated("Other machines cannot be shown: their files cannot be read here ({0}).", error.message)
  }

  const build = () => {
    const header = document.querySelector(".md-header__inner")
    if (select()) select().previousElementSibling.textContent = translated("Machine")
    if (!header || !machines.length || select()) return
    const picker = document.createElement("label"), title = document.createElement("span"), choice = document.createElement("select")
    picker.className = "ov-picker"
    title.className = "ov-picker-name"
    title.textContent = translated("Machine")
    for (const { name: machine, label, local } of machines) choice.add(new Option(local ? translated("{0} (this build)", label) : label, machine))
    choice.addEventListener("change", () => pick(choice.value))
    picker.append(title, choice)
    header.insertBefore(picker, header.querySelector(".md-header__option, .md-search, [for=__search]"))
  }

  /* Each output: the machine that is shown, which moves the picker while what is looked at stays where it is; and another one
     beside it. */
  const controls = box => {
    const place = box.parentElement.querySelector(".ov-choice"), run = built.get(box)
    if (!place || box.closest(".ov-summary") || place.querySelector("select")) return
    const names = all(".ov-part", run).map(({ dataset }) => dataset.name)
    const has = ({ name: machine }) => names.every(name => of(of(mine?.machines, machine.slice(3))?.snippets, name))
    const entries = [...run.dataset.machines.split(" ").map(find), ...own.filter(has)]
    if (entries.length < 2) return
    const choose = (words, more = []) => {
      const label = document.createElement("label"), choice = document.createElement("select")
      choice.ariaLabel = words
      for (const option of [...more, ...entries.map(({ label: text, name }) => new Option(text, name))]) choice.add(option)
      label.className = "ov-machines"
      label.append(words, choice)
      place.append(label)
      return choice
    }
    const shown = choose(translated("shown on")), other = choose(translated("compare with"), [new Option(translated("none"), "")])
    shown.addEventListener("change", async () => {
      const top = place.getBoundingClientRect().top
      await pick(shown.value)
      scrollBy({ top: place.getBoundingClientRect().top - top, behavior: "instant" })
    })
    other.addEventListener("change", async () => {
      try {
        putOutput(box, await drawings(box, current))
      } catch (error) {
        missing(error)
      }
    })
  }

  /* A machine is not compared with itself. */
  const offer = box => {
    const [shown, other] = all(".ov-machines select", box.parentElement)
    if (!shown) return
    shown.value = box.firstElementChild.dataset.machine
    for (const option of other.options) option.hidden = option.disabled = option.value === shown.value
    if (other.value === shown.value) other.value = ""
  }

  // Evidence

  const rowOf = (row, machine, [state, figures, advice, raw]) => {
    const made = row.cloneNode(true), link = made.querySelector("a")
    made.className = `ov-${state}`
    made.dataset.machine = machine
    made.classList.toggle("ov-picked", machine === current)
    texts(made, ".ov-sign", [of(marks, state)])
    texts(made, ".ov-state", [state, advice])
    texts(made, "code", [figures])
    link.textContent = find(machine).label
    isMine(machine) ? link.removeAttribute("href") : link.href = address(raw)
    return made
  }

  /* The page has the row of its machine; when evidence is opened all others come. */
  document.addEventListener("toggle", async ({ target, newState }) => {
    if (newState !== "open" || !target.matches(".ov-evidence") || target.dataset.filled) return
    target.dataset.filled = "yes"
    const list = target.querySelector("ul"), row = list.firstElementChild
    try {
      const verdicts = await Promise.all(machines.map(async ({ name: machine }) => of((await load(machine))?.claims, target.dataset.key)))
      const rows = machines.map(({ name: machine }, i) => machine === row.dataset.machine ? row : verdicts[i] && rowOf(row, machine, verdicts[i]))
      list.replaceChildren(...rows.filter(Boolean))
    } catch (error) {
      delete target.dataset.filled
      missing(error)
    }
  }, true)

  // Tables of machines have one more column, marks one more sign: the reader's own

  const addColumn = (table, { name: machine, label }, put) => {
    const heads = table.tHead.rows[0], head = heads.lastElementChild.cloneNode()
    head.textContent = label
    head.dataset.machine = machine
    heads.append(head)
    for (const line of table.tBodies[0].rows) {
      const cell = document.createElement("td")
      cell.dataset.machine = machine
      put(cell, line)
      line.append(cell)
    }
  }

  const span = (look, text) => Object.assign(document.createElement("span"), { className: look, textContent: text })

  const addOwn = entry => {
    const { name: machine, label } = entry, data = of(mine.machines, machine.slice(3))
    for (const table of all(".ov-rates")) {
      const rates = [...table.tBodies[0].rows].map(row => of(data.blocks, row.dataset.key ?? ""))
      if (!rates.some(Boolean)) continue
      addColumn(table, entry, (cell, row) => {
        const [text, more, origin] = rates[row.sectionRowIndex] ?? noRate
        cell.textContent = text
        cell.title = origin
        if (more) cell.append(document.createElement("br"), Object.assign(document.createElement("small"), { textContent: more }))
      })
    }
    for (const table of all(".ov-claims > table")) {
      addColumn(table, entry, (cell, { dataset }) => {
        const verdict = of(data.claims, dataset.key ?? "")
        if (verdict) {
          const [state] = verdict, mark = span(`ov-cell ov-${state}`, ""), sign = span("", of(marks, state))
          sign.ariaHidden = true
          mark.append(sign, span("ov-unseen", state))
          cell.append(mark)
        }
        for (const [state, words] of of(data.counts, dataset.page ?? "-") ?? []) cell.append(span(`ov-cell ov-${state}`, words), " ")
      })
    }
  }

  const addMarks = () => {
    for (const mark of all(".ov-mark")) {
      const verdicts = own.map(({ name: machine }) => of(of(mine.machines, machine.slice(3)).claims, keyOfMark(mark))?.[0])
      const state = decisive.find(name => verdicts.includes(name))
      if (!state) continue
      mark.append(span(`ov-own ov-${state}`, ` · ${translated("yours")} ${of(marks, state)}`))
      mark.title += translated("; on your machine: {0}", state)
    }
  }

  /* The place where a file is dropped: what is kept now, a button to choose a file, one to forget. */
  const open = zone => {
    const make = (tag, look, text) => Object.assign(document.createElement(tag), { className: look, textContent: text })
    const told = make("p", "ov-told", ""), choose = make("button", "ov-button", "Choose mine.json"), input = make("input", "", "")
    const tell = message => { told.textContent = message }
    told.role = "status"
    Object.assign(input, { type: "file", accept: ".json", hidden: true })
    choose.type = "button"
    choose.addEventListener("click", () => input.click())
    const take = async given => {
      if (!given) return
      try {
        const taken = read(await given.text())
        try {
          localStorage.setItem(MINE, JSON.stringify(taken))
        } catch {
          throw new Error("This browser keeps no file of that size, or none at all.")
        }
        localStorage.setItem(PICKED, `my:${Object.keys(taken.machines).at(-1)}`)
        location.reload()
      } catch (error) {
        tell(`Refused: ${error.message}`)
      }
    }
    input.addEventListener("change", () => take(input.files[0]))
    for (const kind of ["dragenter", "dragover"]) {
      zone.addEventListener(kind, event => {
        event.preventDefault()
        zone.classList.add("ov-over")
      })
    }
    for (const kind of ["dragleave", "drop"]) zone.addEventListener(kind, () => zone.classList.remove("ov-over"))
    zone.addEventListener("drop", event => {
      event.preventDefault()
      take(event.dataTransfer.files[0])
    })
    zone.replaceChildren(make("p", "", "Drop mine.json here, or"), choose, input, told)
    if (refused) tell(`The file that this browser keeps is not used. ${refused}`)
    if (mine) tell("In the picker of every page now: " + own.map(({ name: machine, label }) => `${label} (claims: ${of(mine.machines, machine.slice(3)).tally})`).join(", ") + ".")
    if (!mine && !refused) return
    const forget = make("button", "ov-button", "Forget my machine")
    forget.type = "button"
    forget.addEventListener("click", () => {
      localStorage.removeItem(MINE)
      if (localStorage.getItem(PICKED)?.startsWith("my:")) localStorage.removeItem(PICKED)
      location.reload()
    })
    zone.append(forget)
  }

  const start = () => {
    const first = firstOf(), wanted = chosen() ?? first
    changed = false
    remember(all(OUTPUTS), runIn)
    remember(all(VALUES), valueIn)
    remember(all(BLOCKS), block => block.dataset.given)
    all(".ov-drop").forEach(open)
    for (const mark of all(".ov-mark:not([title])")) mark.title = translated("on how many machines this holds")
    if (!document.querySelector("body [data-machine^='my:']")) {
      own.forEach(addOwn)
      if (mine) addMarks()
    }
    build()
    all(OUTPUTS).forEach(controls)
    if (!wanted) return done("")
    if (select()) select().value = wanted
    if (new URLSearchParams(location.search).has("machine")) localStorage.setItem(PICKED, wanted)
    apply(wanted)
  }

  // The theme announces no page that is opened from a disk.
  location.protocol === "file:" || !window.document$ ? start() : window.document$.subscribe(start)
})()
