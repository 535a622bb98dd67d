/* The reader's own machine: the file `mine.json` that `overlap.pyz --all` wrote, kept in this browser, and put into pages
   as one more machine. Nothing is sent. Whatever the file holds is text and numbers: it arrives as textContent.
   Loaded where there is such a machine, or a place to drop one. */

const PICKED = "overlap.machine", FORM = 1
const PARTS = ["values", "claims", "headlines", "calculators", "snippets"]
const STATES = { holds: "✓", false: "✗", open: "–" }

/* What a file says, without its recordings; an Error says in a sentence why it is refused. */
export const read = (written, edition) => {
  let data
  try {
    data = JSON.parse(written)
  } catch {
    throw new Error("The file is damaged or cut off: it is not JSON.")
  }
  if (data?.overlap !== FORM) throw new Error("This is no mine.json that overlap.pyz wrote.")
  if (data.edition !== edition) {
    throw new Error("The file is of another edition of this book. Download overlap.pyz again, and run it where the file is: only what has changed runs again.")
  }
  const { machines, lacks } = data
  if (!Object.keys(machines ?? {}).length) throw new Error("The file is not finished. Repeat the command: it goes on where it was stopped.")
  const isMap = value => value !== null && typeof value === "object" && !Array.isArray(value)
  const whole = Object.values(machines).every(mine => isMap(mine) && PARTS.every(part => isMap(mine[part])))
  if (!whole || !isMap(lacks)) throw new Error("The file was changed or damaged: parts that overlap.pyz writes are missing. Repeat the command.")
  return { overlap: FORM, edition, machines, lacks }
}

/* What this browser keeps: `mine`, or `why` it cannot be used. */
export const stored = (key, edition) => {
  const kept = localStorage.getItem(key)
  if (kept === null) return {}
  try {
    return { mine: read(kept, edition) }
  } catch (error) {
    return { why: error.message }
  }
}

/* Elements; all content is text. */
const make = (tag, look = "", content = "") => {
  const element = document.createElement(tag)
  if (look) element.className = look
  if (content) element.textContent = content
  return element
}

const shown = value => value === null ? "–" : typeof value === "number" ? value.toLocaleString("en-US", { maximumSignificantDigits: 6 }) : value

const drawn = ({ headings, series }) => {
  const table = make("table", "ov-table"), body = make("tbody"), head = make("tr")
  for (const heading of headings) head.append(Object.assign(make("th", "", heading), { scope: "col" }))
  for (const { name, points } of series) {
    if (name) {
      const title = make("tr")
      title.append(Object.assign(make("th", "", name), { colSpan: 2, scope: "rowgroup" }))
      body.append(title)
    }
    for (const cells of points) {
      const line = make("tr")
      line.append(...cells.map(value => make("td", "", shown(value))))
      body.append(line)
    }
  }
  table.append(make("thead"), body)
  table.tHead.append(head)
  return table
}

/* A run as a page shows it: the numbers stand in the place of its picture. What it printed is left out where a page shows
   the picture alone. */
const shownRun = (profile, { provenance: line, outputs, tables, more }, pictured, alone) => {
  const run = make("div", "ov-run")
  run.dataset.machine = profile
  if (pictured && tables.length) {
    const figure = make("figure", "ov-figure ov-mine"), data = make("div", "ov-data"), box = make("div", "ov-numbers")
    box.tabIndex = 0
    box.append(...tables.map(drawn))
    if (more) box.append(make("p", "", `${more} more in your file.`))
    data.append(box)
    figure.append(make("p", "ov-no-picture", "No picture of your machine: the numbers are in the table."))
    figure.append(data)
    run.append(figure)
  } else if (pictured) run.append(make("p", "ov-no-picture", "No picture of your machine, and no table of its numbers: what it printed is below."))
  const printed = make("div", "ov-printout"), ranks = new Set(outputs.map(([rank]) => rank)).size
  for (const [rank, stream, content] of alone && tables.length ? [] : outputs) {
    if (ranks > 1) printed.append(make("div", "ov-rank", `rank ${rank}`))
    printed.append(Object.assign(make("pre", stream === "stderr" ? "ov-text ov-stderr" : "ov-text", content), { tabIndex: 0 }))
  }
  const provenance = make("details", "ov-fold ov-provenance")
  provenance.append(make("summary", "", "Your machine"), make("p", "", line))
  run.append(printed, provenance)
  return run
}

/* What twins gave, as one run. */
const together = runs => {
  const run = make("div", "ov-run"), twins = make("div", "ov-twins")
  run.dataset.machine = runs[0].dataset.machine
  for (const [i, { childNodes }] of runs.entries()) {
    const twin = make("div", "ov-twin")
    twin.append(make("p", "ov-which", i ? "Fixed" : "Broken"), ...childNodes)
    twins.append(twin)
  }
  run.append(twins)
  return run
}

/* One more tab, in the theme's own form. The theme knows nothing of it, so its line below the chosen tab is moved here. */
let tabs = 0
const addTab = (set, title, content) => {
  const inputs = set.querySelectorAll(":scope > input"), labels = set.querySelector(":scope > .tabbed-labels")
  const input = Object.assign(make("input"), { type: "radio", name: inputs[0].name, id: `ov-my-tab-${tabs += 1}` })
  const label = Object.assign(make("label"), { htmlFor: input.id }), block = make("div", "tabbed-block")
  label.append(make("a", "", title))  // as the theme has it
  input.addEventListener("change", () => {
    labels.style.setProperty("--md-indicator-x", `${label.offsetLeft}px`)
    labels.style.setProperty("--md-indicator-width", `${label.offsetWidth}px`)
  })
  block.append(content)
  inputs[inputs.length - 1].after(input)
  labels.append(label)
  set.querySelector(":scope > .tabbed-content").append(block)
}

/* A table of machines has one more column. */
const addColumn = (table, profile, title, cell) => {
  table.tHead.rows[0].append(Object.assign(make("th", "", title), { scope: "col" }))
  for (const line of table.tBodies[0].rows) {
    const place = make("td")
    place.dataset.machine = profile
    cell(place, line)
    line.append(place)
  }
}

const states = cells => {
  const count = { holds: 0, false: 0, open: 0 }
  for (const [verdict] of cells) count[verdict] += 1
  return count
}

/* Put the machine into the page. */
export const insert = ({ machines }) => {
  if (document.querySelector("body [data-machine^='my:']")) return
  const keyed = selector => [...document.querySelectorAll(`${selector}[data-key]`)].map(element => [element, element.dataset.key])
  for (const [own, mine] of Object.entries(machines)) {
    const profile = `my:${own}`, title = `your ${mine.label}`
    for (const [value, key] of keyed(".ov-value")) {
      if (!Object.hasOwn(mine.values, key)) continue
      const [said, range, note] = mine.values[key], span = make("span", "", said)
      span.dataset.machine = profile
      span.dataset.note = note
      if (range) span.append(make("small", "ov-range", ` (${range})`))
      value.append(span)
    }
    for (const [evidence, key] of keyed(".ov-evidence")) {
      if (!Object.hasOwn(mine.claims, key)) continue
      const [verdict, figures] = mine.claims[key], item = make("li", `ov-${verdict}`)
      item.dataset.machine = profile
      item.append(make("span", "ov-sign", STATES[verdict]), " ", make("b", "", title), " ", make("span", "ov-state", verdict), "\n", make("code", "", figures))
      evidence.querySelector("ul").append(item)
    }
    for (const box of document.querySelectorAll("[data-snippet]")) {
      const set = box.querySelector(".tabbed-set"), names = box.dataset.snippet.split(" ")
      if (!set || !names.every(name => Object.hasOwn(mine.snippets, name))) continue
      const pictured = Boolean(set.querySelector(".ov-figure"))
      const runs = names.map(name => shownRun(profile, mine.snippets[name], pictured, !box.matches(".ov-views")))
      addTab(set, title, runs.length > 1 ? together(runs) : runs[0])
    }
    for (const [form, key] of keyed(".ov-calculator")) {
      const names = [...form.querySelectorAll("[type=number]")].map(({ name }) => name)
      if (!Object.hasOwn(mine.calculators, key) || names.some(name => !Object.hasOwn(mine.calculators[key], name))) continue
      form.dataset.starts = JSON.stringify({ ...JSON.parse(form.dataset.starts), [profile]: mine.calculators[key] })
    }
    for (const rates of document.querySelectorAll(".ov-rates")) {
      if (![...rates.rows].some(({ dataset }) => Object.hasOwn(mine.headlines, dataset.key ?? ""))) continue
      addColumn(rates, profile, title, (cell, { dataset: { key } }) => {
        const [said, range, share, origin] = Object.hasOwn(mine.headlines, key) ? mine.headlines[key] : ["–", "", "", "did not run there"]
        const more = [range, share].filter(Boolean).join(" · ")
        cell.textContent = said
        cell.title = origin
        if (more) cell.append(make("br"), make("small", "", more))
      })
    }
    for (const table of document.querySelectorAll(".ov-claims:not(.ov-counts) > table")) {
      addColumn(table, profile, title, (cell, { dataset: { key } }) => {
        if (!Object.hasOwn(mine.claims, key)) return
        const [verdict, figures] = mine.claims[key], mark = make("span", `ov-cell ov-${verdict}`)
        mark.dataset.machine = profile
        mark.dataset.note = `${title}: ${figures}`
        mark.tabIndex = -1
        mark.append(make("span", "ov-sign", STATES[verdict]), make("span", "ov-unseen", verdict))
        cell.append(mark)
      })
    }
    for (const table of document.querySelectorAll(".ov-counts > table")) {
      addColumn(table, profile, title, (cell, line) => {
        const name = line.cells[0].textContent, index = [...document.querySelectorAll(".ov-claims:not(.ov-counts)")]
        const ours = index.filter(box => box.ariaLabel === name || line === table.tBodies[0].lastElementChild)
        const rows = ours.flatMap(box => [...box.querySelectorAll("tr[data-key]")])
        const count = states(rows.map(({ dataset: { key } }) => mine.claims[key]).filter(Boolean))
        for (const [verdict, n] of Object.entries(count)) {
          if (n) cell.append(make("span", `ov-cell ov-${verdict}`, `${n} ${verdict === "holds" && n > 1 ? "hold" : verdict}`), " ")
        }
      })
    }
    for (const list of document.querySelectorAll(".ov-book-tally ul")) {
      const item = make("li", "", `${title}: ${summary(mine)}`)
      item.dataset.machine = profile
      list.append(item)
    }
  }
  for (const [mark, key] of keyed(".ov-mark")) {
    const verdicts = Object.values(machines).filter(({ claims }) => Object.hasOwn(claims, key)).map(({ claims }) => claims[key][0])
    if (!verdicts.length) continue
    const verdict = ["false", "open", "holds"].find(name => verdicts.includes(name))
    mark.append(make("span", `ov-own ov-${verdict}`, ` · yours ${STATES[verdict]}`))
    mark.title += `; on your machine: ${verdict}`
    mark.ariaLabel = mark.title
  }
}

const summary = ({ claims }) => {
  const count = states(Object.values(claims))
  return `${count.holds} of ${count.holds + count.false} claims hold${count.open ? `, ${count.open} open` : ""}`
}

/* The place where a file is dropped: what is kept now, a button to choose a file, one to forget. */
export const open = (zone, key, edition, mine, why) => {
  const told = make("p", "ov-told"), choose = make("button", "ov-button", "Choose mine.json"), input = make("input")
  const say = message => { told.textContent = message }
  told.role = "status"
  Object.assign(input, { type: "file", accept: ".json", hidden: true })
  choose.type = "button"
  choose.addEventListener("click", () => input.click())
  const take = async given => {
    if (!given) return
    try {
      const taken = read(await given.text(), edition)
      try {
        localStorage.setItem(key, JSON.stringify(taken))
      } catch {
        throw new Error("This browser keeps no file of that size, or none at all.")
      }
      localStorage.setItem(PICKED, `my:${Object.keys(taken.machines).at(-1)}`)
      location.reload()
    } catch (error) {
      say(`Refused: ${error.message}`)
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
  if (why) say(`The file that this browser keeps is not used. ${why}`)
  if (mine) {
    say("In the picker of every page now: " + Object.values(mine.machines).map(here => `your ${here.label}, ${summary(here)}`).join("; ") + ".")
  }
  if (!mine && !why) return
  const forget = make("button", "ov-button", "Forget my machine")
  forget.type = "button"
  forget.addEventListener("click", () => {
    localStorage.removeItem(key)
    if (localStorage.getItem(PICKED)?.startsWith("my:")) localStorage.removeItem(PICKED)
    location.reload()
  })
  zone.append(forget)
}
