/* The machine picker: one select in the header that tabs, values and verdicts on every page follow.
   Pictures: the one in view becomes part of the page, where its marks tell their values.
   Without this script each page shows one machine, its tabs can still be switched, and pictures are images. */

(() => {
  const KEY = "overlap.machine", MINE = "overlap.mine", ASSETS = new URL(".", document.currentScript.src)
  const machines = window.overlapMachines ?? []  // from generated/machines.js
  const label = Object.fromEntries(machines.map(m => [m.profile, m.label]))
  /* A name without the size of its memory, where it still is the name of one machine. */
  const short = ({ label: name }) => {
    const without = name.replace(/ \d+GB.*/, "")
    return machines.filter(other => other.label.startsWith(without)).length === 1 ? without : name
  }
  const isMine = profile => profile.startsWith("my:")  // a machine of the reader's
  const isCpu = profile => /^(my:)?cpu(-|$)/.test(profile)
  const parts = profile => {
    const [, model, count] = profile.match(/^(?:my:)?(.+?)(?:-x(\d+))?$/)
    return { model, count: isCpu(profile) ? 0 : Number(count ?? 1) }
  }

  /* The machine among `profiles` that is nearest to the wanted one: same model, then the closest GPU count.
     Another machine of the reader's stands for the wanted one only where it is of that model, or where no GPU is asked for. */
  const nearest = (wanted, every) => {
    if (every.includes(wanted)) return wanted
    const { model, count } = parts(wanted)
    const own = every.filter(isMine).filter(other => parts(other).model === model || every.every(isCpu))
    const profiles = isMine(wanted) && own.length ? own : every.filter(other => !isMine(other))
    const book = parts(machines.find(m => m.first)?.profile ?? wanted).model  // of two that are as near, the book's
    const distance = profile => {
      const other = parts(profile)
      return (other.model === model ? 0 : 100) + Math.abs(other.count - count)
        + (other.count === 0 && count > 0 ? 1000 : 0) + (other.model === book ? 0 : 0.5)
    }
    return [...profiles].sort((a, b) => distance(a) - distance(b))[0]
  }

  /* Whether a run is what the wanted machine would give, too: a snippet for one GPU counts on hosts of several, one for the CPU everywhere. */
  const same = (wanted, shown, profiles) => {
    const here = parts(wanted), there = parts(shown)
    if (isMine(wanted) !== isMine(shown)) return false
    return wanted === shown || (here.model === there.model && there.count === 1) || profiles.every(isCpu)
  }

  /* Why snippets did not run on the reader's machine, by name. */
  let lacks = {}

  const runsOf = set => [...set.querySelectorAll(".ov-run")].map(run => run.dataset.machine)

  /* Before the set, not in it: the theme finds a set's blocks by counting its children. */
  const note = (set, wanted, shown, runs) => {
    let line = set.previousElementSibling?.matches(".ov-nearest-note") ? set.previousElementSibling : null
    if (same(wanted, shown, runs)) return line?.remove()
    if (!line) {
      line = document.createElement("p")
      line.className = "ov-nearest-note"
      set.before(line)
    }
    const why = isMine(wanted) && lacks[set.closest("[data-snippet]")?.dataset.snippet]
    line.textContent = `Not run on ${label[wanted]}${why ? ` (${why})` : ""}; shown is ${label[shown] ?? shown}.`
  }

  /* Calculators. The formula arrives as nested lists and is computed by name, so that nothing is run as code. */
  const OPERATIONS = {
    "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b, "**": (a, b) => a ** b,
    "//": (a, b) => Math.floor(a / b), "%": (a, b) => a - b * Math.floor(a / b),
    ">": (a, b) => a > b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, "<=": (a, b) => a <= b,
    "==": (a, b) => a === b, "!=": (a, b) => a !== b, abs: Math.abs, max: Math.max, min: Math.min, round: Math.round,
  }
  const compute = (term, numbers) => {
    if (!Array.isArray(term)) return term
    const [kind, ...terms] = term
    if (kind === "name") return numbers[terms[0]]
    if (kind === "if") return compute(compute(terms[0], numbers) ? terms[1] : terms[2], numbers)
    return OPERATIONS[kind](...terms.map(each => compute(each, numbers)))
  }
  const shown = number => Math.abs(number) >= 1000
    ? Math.round(number).toLocaleString("en-US") : String(Number(number.toPrecision(3)))

  /* A long way is gone by factors, a short one by steps, as where the page was made. */
  const way = input => {
    const low = Number(input.min), high = Number(input.max), far = low > 0 && high / low >= 50
    return {
      at: share => far ? low * (high / low) ** share : low + (high - low) * share,
      share: value => far ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low),
    }
  }

  /* Some inputs take whole numbers only. */
  const rounded = (input, number, digits) =>
    input.step === "1" ? Math.round(number) : Number(number.toPrecision(digits))

  const calculate = form => {
    const formula = JSON.parse(form.dataset.formula)
    const inputs = [...form.querySelectorAll("[type=number]")]
    const numbers = Object.fromEntries(inputs.map(input => [input.name, Number(input.value)]))
    const result = compute(formula, numbers)
    form.querySelector("output").textContent = Number.isFinite(result) ? shown(result) : "–"
    for (const input of inputs) input.previousElementSibling.value = way(input).share(Number(input.value))
    const curve = inputs.find(input => input.name === form.dataset.curve), { at, share } = way(curve)
    const steps = [...Array(65).keys()].map(i => i / 64)
    const drawn = steps.map(step => compute(formula, { ...numbers, [curve.name]: at(step) }))
    const top = Math.max(...drawn.filter(Number.isFinite), result, 1e-9)
    const place = (step, value) => [(320 * step).toFixed(1), (110 * (1 - 0.9 * value / top)).toFixed(1)]
    form.querySelector("polyline").setAttribute("points", steps.map((step, i) => place(step, drawn[i])).join(" "))
    const [x, y] = place(share(numbers[curve.name]), result), dot = form.querySelector("circle")
    dot.setAttribute("cx", x)
    dot.setAttribute("cy", y)
    form.querySelector(".ov-top").textContent = shown(top)
  }

  const begin = (form, wanted) => {
    const starts = JSON.parse(form.dataset.starts), start = starts[nearest(wanted, Object.keys(starts))]
    for (const input of form.querySelectorAll("[type=number]")) {
      const slider = input.previousElementSibling
      if (input.disabled) {
        input.disabled = slider.disabled = false
        slider.addEventListener("input", () => {
          input.value = rounded(input, way(input).at(Number(slider.value)), 3)
        })
        form.addEventListener("submit", event => event.preventDefault())
        form.addEventListener("input", event => {
          if (event.target === input || event.target === slider) input.dataset.changed = ""
          if (form.checkValidity()) calculate(form)
        })
      }
      if (!("changed" in input.dataset)) input.value = rounded(input, start[input.name], 4)
    }
    calculate(form)
  }

  /* One line below the title says so where a page is not shown on the machine that the reader expects. The build writes it,
     so that nothing moves, for the machine that the page opens on. */
  const announce = (wanted, shown, others) => {
    const head = document.querySelector(".ov-head"), name = short({ label: label[wanted] }), sentences = []
    if (!head) return
    /* Of a host with several GPUs a page for one GPU shows nothing: it is shown on one GPU of that model. */
    const here = shown.includes(wanted) ? wanted : shown.find(machine => !isCpu(machine)) ?? shown[0] ?? wanted
    head.querySelector(".ov-here").textContent = short({ label: label[here] ?? here })
    if (!chosen() && wanted !== machines.find(m => m.first)?.profile) {
      sentences.push(`This page opens on ${name}, on which most of it ran.`)
    }
    if (others) {
      const are = others === 1 ? "is" : "are"
      sentences.push(`${others} of the ${shown.length} outputs below ${are} from another machine, which is named there.`)
    }
    let line = document.querySelector(".ov-switch")
    if (!sentences.length) return line?.remove()
    if (!line) {
      line = document.createElement("p")
      line.className = "ov-switch"
      line.role = "status"
      head.after(line)
    }
    line.textContent = sentences.join(" ")
  }

  /* Whether a paragraph, or a table and what stands before it, names the model of a machine. */
  const names = (value, machine) => {
    const table = value.closest("table"), before = (table?.closest(".md-typeset__scrollwrap") ?? table)?.previousElementSibling
    const place = table ?? value.closest("p, li, dd") ?? value
    const [model] = label[machine].replace(/^\d+ × /, "").split(" ")
    return `${before?.textContent} ${place.textContent}`.includes(model)
  }

  let following = false
  const apply = wanted => {
    document.documentElement.dataset.machine = wanted
    let block, last
    for (const value of document.querySelectorAll(".ov-value")) {
      const spans = [...value.children]
      const there = spans.map(span => span.dataset.machine), shown = nearest(wanted, there)
      for (const span of spans) span.classList.toggle("ov-on", span.dataset.machine === shown)
      delete value.dataset.on
      /* A sentence about one machine names it, or says only of how many GPUs of the picked model it speaks. */
      const isAlike = !isMine(wanted) && parts(shown).model === parts(wanted).model
      if (value.matches(".ov-pinned") && (isAlike || names(value, shown))) continue
      /* Within a paragraph or a row a machine is named where it changes. */
      const place = value.closest("p, li, tr, dd"), machine = same(wanted, shown, there) ? wanted : shown
      if (place !== block) last = wanted
      if (machine !== last) value.dataset.on = label[machine].replace(" × ", "× ").replace(/ \d+GB.*/, "")
      block = place
      last = machine
    }
    const machinesShown = []
    let others = 0
    for (const set of document.querySelectorAll(".tabbed-set")) {
      const runs = runsOf(set)
      if (!runs.length) continue
      const shown = nearest(wanted, runs)
      machinesShown.push(shown)
      others += !same(wanted, shown, runs)
      const input = [...set.querySelectorAll(":scope > input")][runs.indexOf(shown)]
      following = true  // its own clicks move no picker
      if (input && !input.checked) input.click()
      for (const run of set.querySelectorAll(".ov-run")) run.classList.toggle("ov-shown", run.dataset.machine === shown)
      following = false
      note(set, wanted, shown, runs)
    }
    announce(wanted, machinesShown, others)
    for (const form of document.querySelectorAll(".ov-calculator")) begin(form, wanted)
    for (const row of document.querySelectorAll(".ov-evidence li")) {
      row.classList.toggle("ov-picked", row.dataset.machine === wanted)
    }
  }

  const narrow = matchMedia("(max-width: 33rem)")

  /* Arrow keys, a pointer or a finger move between the marks of a picture; the line below it tells the value. */
  const speak = (box, told, label) => {
    const marks = [...box.querySelectorAll(".ov-point")]
    box.role = marks.length ? "group" : "img"
    box.ariaLabel = label + (marks.length ? ` Arrow keys tell its ${marks.length} values.` : "")
    if (!marks.length) return
    box.tabIndex = 0
    let at = -1
    const tell = to => {
      marks[at]?.classList.remove("ov-at")
      at = to
      marks[at]?.classList.add("ov-at")
      told.textContent = marks[at]?.textContent ?? ""
    }
    box.addEventListener("keydown", event => {
      const last = marks.length - 1
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key]
      if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return
      event.preventDefault()
      tell(Math.max(0, Math.min(last, to)))
    })
    box.addEventListener("pointerover", event => tell(marks.indexOf(event.target)))
    box.addEventListener("pointerleave", event => event.pointerType === "mouse" && tell(-1))  // a finger that lifts leaves the value
    box.addEventListener("blur", () => tell(-1))
  }

  const inline = async picture => {
    const image = picture.querySelector("img")
    const small = narrow.matches || picture.closest(".ov-two, .ov-twin")
    const drawn = small ? picture.querySelector("source").srcset : image.src
    const answer = await fetch(drawn).catch(() => null)
    if (!answer?.ok || picture.hidden) return
    const text = (await answer.text()).replace(/<style\b.*?<\/style>/s, "")  // the page has a style of its own for it
    const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement
    svg.setAttribute("aria-hidden", "true")
    const box = document.createElement("div"), told = document.createElement("p")
    box.className = "ov-picture"
    box.append(svg)
    told.className = "ov-told"
    told.ariaLive = "polite"
    picture.hidden = true
    picture.after(box, told)
    speak(box, told, image.alt)
  }

  const inView = new IntersectionObserver(seen => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue
      inView.unobserve(target)
      inline(target)
    }
  }, { rootMargin: "400px" })

  const watch = () => {
    inView.disconnect()
    for (const picture of document.querySelectorAll(".ov-figure picture:not([hidden])")) inView.observe(picture)
  }

  const redraw = (place = document) => {
    for (const part of place.querySelectorAll(".ov-picture, .ov-picture + .ov-told")) part.remove()
    for (const picture of place.querySelectorAll(".ov-figure picture")) picture.hidden = false
    watch()
  }
  narrow.addEventListener("change", () => redraw())

  /* What the address asks for, or what this browser remembers. */
  const chosen = () => [new URLSearchParams(location.search).get("machine"), localStorage.getItem(KEY)]
    .find(profile => profile && label[profile])

  /* Else what the page opens on, or the book. */
  const picked = () => chosen() ?? [document.querySelector(".ov-head")?.dataset.first, machines.find(m => m.first)?.profile]
    .find(profile => profile && label[profile])

  const pick = profile => {
    localStorage.setItem(KEY, profile)
    const url = new URL(location.href), select = document.querySelector(".ov-picker select")
    if (url.searchParams.has("machine")) {
      url.searchParams.set("machine", profile)
      history.replaceState(history.state, "", url)
    }
    if (select) select.value = profile
    apply(profile)
  }

  /* A clicked tab moves the picker, and what the reader looks at stays where it is. */
  document.addEventListener("change", event => {
    if (following || !event.target.matches(".tabbed-set > input")) return
    const set = event.target.parentElement, top = set.getBoundingClientRect().top
    const number = [...set.querySelectorAll(":scope > input")].indexOf(event.target)
    const run = set.querySelectorAll(":scope > .tabbed-content > .tabbed-block")[number]?.querySelector(".ov-run")
    if (!run) return
    pick(run.dataset.machine)
    scrollBy({ top: set.getBoundingClientRect().top - top, behavior: "instant" })
  })

  /* Two machines beside each other in one figure. */
  const beside = () => {
    for (const set of document.querySelectorAll(".tabbed-set:has(.ov-run .ov-figure):not([data-beside], .ov-summary *)")) {
      set.dataset.beside = ""
      const blocks = [...set.querySelectorAll(":scope > .tabbed-content > .tabbed-block")]
      if (blocks.length < 2) continue
      const row = document.createElement("label"), select = document.createElement("select")
      row.className = "ov-beside"
      const words = document.createTextNode("")
      select.ariaLabel = "Compare with"
      select.add(new Option("Compare with …", ""))
      for (const block of blocks) {
        const profile = block.querySelector(".ov-run").dataset.machine
        block.dataset.label = label[profile] ?? profile
        select.add(new Option(block.dataset.label, profile))
      }
      const compare = () => {
        for (const block of blocks) {
          block.classList.toggle("ov-second", block.querySelector(".ov-run").dataset.machine === select.value)
        }
        set.classList.toggle("ov-two", Boolean(select.value))
        words.data = select.value ? "compared with" : ""
        redraw(set)
      }
      /* A machine is not compared with itself. */
      const offer = () => {
        const inputs = [...set.querySelectorAll(":scope > input")]
        for (const [i, option] of [...select.options].slice(1).entries()) option.hidden = option.disabled = inputs[i].checked
      }
      offer()
      select.addEventListener("change", compare)
      set.addEventListener("change", event => {
        if (!event.target.matches(".tabbed-set > input")) return
        offer()
        if (select.value) compare()
      })
      row.append(words, select)
      const choice = set.closest(".ov-views")?.querySelector(".ov-choice")
      choice ? choice.append(row) : set.before(row)
    }
  }

  /* A guess opens its answer. */
  document.addEventListener("change", event => {
    const answer = event.target.closest(".ov-guess fieldset")?.parentElement.querySelector("details")
    if (answer) answer.open = true
  })

  /* A file is fetched when a reader opens it, and shown without what comments say to linters. */
  document.addEventListener("change", async event => {
    if (!event.target.matches(".ov-choice [value=file]")) return
    for (const file of event.target.closest(".ov-views").querySelectorAll(".ov-file")) {
      if (!file.dataset.source || file.querySelector("pre")) continue
      const text = document.createElement("pre")
      text.tabIndex = 0
      file.append(text)
      const answer = await fetch(file.dataset.source).catch(() => null)
      if (answer?.ok) text.textContent = (await answer.text()).replace(/[ \t]*# (noqa|type: ignore)[^\n]*/g, "")
      else text.remove()
    }
  })

  /* Perfetto takes a trace from the page that opened it: it answers PING when it is ready. */
  const PERFETTO = "https://ui.perfetto.dev"
  const traces = () => {
    for (const place of document.querySelectorAll(".ov-perfetto:not(:has(button))")) {
      const button = document.createElement("button")
      button.type = "button"
      button.textContent = "open in Perfetto"
      button.addEventListener("click", () => {
        const perfetto = open(PERFETTO), trace = fetch(place.dataset.trace).then(answer => answer.arrayBuffer())
        const ask = setInterval(() => perfetto.closed ? clearInterval(ask) : perfetto.postMessage("PING", PERFETTO), 100)
        const answered = async event => {
          if (event.source !== perfetto || event.data !== "PONG") return
          clearInterval(ask)
          removeEventListener("message", answered)
          perfetto.postMessage({ perfetto: { buffer: await trace, title: place.dataset.title } }, PERFETTO)
        }
        addEventListener("message", answered)
      })
      place.replaceChildren(" · ", button)
    }
  }

  /* Timelines can be explored. What that needs is loaded when a reader asks for it. */
  const exploring = () => {
    for (const row of document.querySelectorAll(".ov-run .ov-explorable:empty")) {
      const figure = row.parentElement, button = document.createElement("button")
      button.type = "button"
      button.textContent = "Explore this timeline"
      button.addEventListener("click", async () => {
        if (!figure.querySelector(".ov-explore")) {
          const { explore } = await import(new URL("timeline.js", ASSETS))
          await explore(row, figure.dataset.trace)
        }
        figure.querySelector(".ov-timeline")?.focus({ preventScroll: true })
      })
      row.append(button)
    }
  }

  /* The clinic's game begins when a reader asks for it; the picked machine's trace is played. */
  const playing = () => {
    for (const place of document.querySelectorAll(".ov-find-fault:not(:has(button))")) {
      const button = document.createElement("button")
      button.type = "button"
      button.className = "ov-begin"
      button.textContent = "Find the faults in these traces"
      button.addEventListener("click", async () => {
        const { play } = await import(new URL("fault.js", ASSETS))
        const [faults, steps] = [".ov-faults table", ".ov-steps table"].map(name => document.querySelector(name))
        const traces = [...document.querySelectorAll(`.ov-perfetto[data-title="${place.dataset.snippet}"]`)]
        const seen = traces.find(trace => trace.closest(".ov-shown")) ?? traces[0]
        await play(place, faults, steps, seen.dataset.trace)
      })
      place.replaceChildren(button)
    }
  }

  /* The copy buttons of notebook pages. */
  const copying = () => {
    for (const button of document.querySelectorAll("clipboard-copy:not([role])")) {
      button.role = "button"
      button.tabIndex = 0
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(document.getElementById(button.getAttribute("for")).textContent)
        const notice = button.querySelector(".notice")
        notice.hidden = false
        setTimeout(() => { notice.hidden = true }, 1000)
      })
      button.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return
        event.preventDefault()
        button.click()
      })
    }
  }

  /* A link to a section of another page. On a slow device the theme may take the last scroll of the page before for its place. */
  let followed = ""
  document.addEventListener("click", event => {
    const link = event.target.closest("a[href]")
    followed = link?.hash && link.pathname !== location.pathname ? link.href : ""
  }, true)

  /* A link into a fold opens it, one to a claim its evidence. */
  const opened = () => {
    const mark = document.getElementById(decodeURIComponent(location.hash.slice(1)))
    let closed = mark?.closest("details:not([open])")
    const folded = Boolean(closed)
    for (; closed; closed = closed.parentElement.closest("details:not([open])")) closed.open = true
    if (folded) mark.scrollIntoView()
    else if (mark && followed === location.href) setTimeout(() => location.replace(location.hash))
    if (mark?.matches(".ov-mark")) document.getElementById(`${mark.id}-evidence`)?.matches(":popover-open") || mark.click()
  }
  addEventListener("hashchange", opened)

  /* A link from the evidence to another place of its page closes it, else it would lie over that place. */
  document.addEventListener("click", event => {
    const link = event.target.closest(".ov-evidence a:not(.headerlink)")
    if (link?.hash && link.pathname === location.pathname) link.closest(".ov-evidence").hidePopover()
  })

  const build = () => {
    const header = document.querySelector(".md-header__inner")
    if (!header || !machines.length || header.querySelector(".ov-picker")) return
    const picker = document.createElement("label")
    picker.className = "ov-picker"
    picker.innerHTML = '<span class="ov-picker-name">Machine</span><select></select>'
    const select = picker.querySelector("select")
    for (const machine of machines) {
      const option = new Option(machine.label + (machine.local ? " (this build)" : ""), machine.profile)
      if (narrow.matches) option.label = option.text.replace(machine.label, short(machine))
      select.add(option)
    }
    select.value = picked()
    select.addEventListener("change", () => pick(select.value))
    header.insertBefore(picker, header.querySelector(".md-header__option, .md-search, [for=__search]"))
  }

  /* Indexes: words and chips choose rows, and the address remembers them. Without this script all rows are there. */
  const filter = () => {
    const tables = [...document.querySelectorAll(".ov-index:not(.ov-counts)")]
    if (!tables.length || document.querySelector(".ov-filters")) return
    const rows = tables.flatMap(table => [...table.querySelectorAll("tbody tr")].map(row => ({
      row, table, text: `${table.ariaLabel} ${row.dataset.file ?? ""} ${row.querySelector("a")?.getAttribute("href")} ${row.textContent}`.toLowerCase(),
      states: Object.fromEntries([...row.querySelectorAll(".ov-cell")].map(cell =>
        [cell.dataset.machine, cell.querySelector(".ov-unseen").textContent])),
    })))
    const claims = Boolean(document.querySelector(".ov-counts"))
    const asked = new URLSearchParams(location.search), form = document.createElement("form")
    form.className = "ov-filters"
    form.ariaLabel = "Rows to show"
    const add = (name, title, control) => {
      const box = document.createElement("label")
      control.name = name
      box.append(title, control)
      form.append(box)
      return box
    }
    const words = Object.assign(document.createElement("input"), { type: "search", value: asked.get("words") ?? "" })
    add("words", "Words", words)
    if (claims) {
      const on = document.createElement("select")
      on.add(new Option("any machine", ""))
      for (const { label, profile } of machines) if (rows.some(({ states }) => profile in states)) on.add(new Option(label, profile))
      add("on", "On", on)
      on.value = asked.get("on") ?? ""
    }
    const chips = claims ? { verdict: ["holds", "false", "open"] } : { needs: ["runs on a laptop"] }
    for (const [name, values] of Object.entries(chips)) {
      for (const value of values) {
        const chip = Object.assign(document.createElement("input"), { type: "checkbox", value, checked: asked.getAll(name).includes(value) })
        const box = add(name, "", chip)
        box.className = `ov-chip ov-${value.split(" ")[0]}`
        box.append(value)
      }
    }
    const said = document.createElement("output")
    form.append(said)
    const show = () => {
      const chosen = new FormData(form), on = chosen.get("on"), verdicts = chosen.getAll("verdict"), needs = chosen.get("needs")
      const parts = chosen.get("words").toLowerCase().split(/\s+/).filter(Boolean)
      let shown = 0
      for (const table of tables) table.hidden = true
      for (const { row, table, text, states } of rows) {
        const there = on ? [states[on]].filter(Boolean) : Object.values(states)
        const decided = !claims || there.some(state => !verdicts.length || verdicts.includes(state))
        row.hidden = !(decided && (!needs || text.includes(needs)) && parts.every(part => text.includes(part)))
        if (!row.hidden) table.hidden = false
        shown += !row.hidden
      }
      for (const table of tables) {
        const fold = table.closest("details"), box = fold ?? table
        if (fold) fold.open = shown < rows.length && !table.hidden
        box.hidden = table.hidden
        if (box.previousElementSibling?.matches("h2")) box.previousElementSibling.hidden = table.hidden
      }
      said.textContent = `${shown} of ${rows.length} ${claims ? "claims" : "snippets"}`
    }
    form.addEventListener("submit", event => event.preventDefault())
    form.addEventListener("input", () => {
      const url = new URL(location.href)
      for (const name of ["words", "on", "verdict", "needs"]) url.searchParams.delete(name)
      for (const [name, value] of new FormData(form)) if (value) url.searchParams.append(name, value)
      history.replaceState(history.state, "", url)
      show()
    })
    const place = document.querySelector(".ov-counts") ?? tables[0].previousElementSibling
    claims ? place.after(form) : place.before(form)
    show()
  }

  /* The theme gives each code block a landmark when it comes near, all of one name. */
  const nameCode = () => {
    for (const [i, bar] of document.querySelectorAll(".md-code__nav").entries()) bar.ariaLabel = `Code ${i + 1}`
  }
  const named = new MutationObserver(nameCode)

  /* What the theme and the notebook pages leave without a name or out of the keyboard's reach. */
  const mend = () => {
    document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
    for (const link of document.querySelectorAll(".headerlink")) link.tabIndex = -1  // the contents lead there, too
    nameCode()
    named.observe(document.querySelector(".md-content") ?? document.body, { childList: true, subtree: true })
    const scrolling = ".jupyter-wrapper :is(.highlight-ipynb, .jp-OutputArea-output, .jp-RenderedMarkdown pre)"
    for (const box of document.querySelectorAll(scrolling)) box.tabIndex = 0
    /* On a phone a row is a card, whose cells say what their column is called; and the name of a machine is not broken after its number. */
    for (const table of document.querySelectorAll(".md-typeset table:is(:not([class]), .ov-matrix)")) {
      const heads = [...table.querySelectorAll("thead :is(th, td)")].map(head => {
        const heading = head.cloneNode(true)
        for (const part of heading.querySelectorAll("small, .ov-value > :not(.ov-on)")) part.remove()
        return heading.textContent.trim()
      })
      for (const cell of table.querySelectorAll("tbody td:not([data-label])")) cell.dataset.label = heads[cell.cellIndex] ?? ""
    }
    for (const head of document.querySelectorAll("th")) {
      const name = head.firstChild
      if (name?.nodeType === Node.TEXT_NODE) name.data = name.data.replace(/^(\d+) × (?=\S)/, "$1\u00a0×\u00a0")
    }
    for (const source of document.querySelectorAll(".ov-twin source")) source.media = "all"  // beside each other they are narrow
    for (const tabs of document.querySelectorAll(".tabbed-labels")) {
      if (narrow.matches || tabs.childElementCount > 5) tabs.tabIndex = 0  // they scroll
    }
  }

  /* The reader's machine, where there is one: it is put into the page first, as one more of the book's. */
  const owning = async () => {
    const zone = document.querySelector(".ov-drop")
    if (!zone && localStorage.getItem(MINE) === null) return
    const { insert, open, stored } = await import(new URL("mine.js", ASSETS))
    const { mine, why } = stored(MINE, window.overlapEdition)
    if (mine && !machines.some(({ profile }) => isMine(profile))) {
      lacks = mine.lacks
      for (const [profile, { label: name }] of Object.entries(mine.machines)) {
        machines.push({ profile: `my:${profile}`, label: `your ${name}`, local: false, first: false })
        label[`my:${profile}`] = `your ${name}`
      }
    }
    if (zone) open(zone, MINE, window.overlapEdition, mine, why)
    if (!mine) return
    try {
      insert(mine)
    } catch (error) {
      console.error(error)
      zone?.append("The file that this browser keeps is damaged: pages show only a part of it. Forget it, and repeat the command.")
    }
  }

  const start = async () => {
    if (document.querySelector(".ov-drop") || localStorage.getItem(MINE) !== null) await owning().catch(console.error)
    build()
    filter()
    mend()
    watch()
    beside()
    traces()
    exploring()
    playing()
    copying()
    const wanted = picked()
    if (!wanted) return
    const select = document.querySelector(".ov-picker select")
    if (select) select.value = wanted
    if (new URLSearchParams(location.search).has("machine")) localStorage.setItem(KEY, wanted)
    apply(wanted)
    opened()
  }

  window.document$ ? window.document$.subscribe(start) : start()
})()
