/* Pictures: the one in view becomes part of the page, where its marks tell their values. Calculators, indexes, and what else a
   page does where a reader acts. machines.js, before this, says by "ov-shown" which place shows another machine.
   Without this script pictures are images, and all else can be read. */

(() => {
  const ASSETS = new URL(".", document.currentScript.src)
  const { translated, round, shown, roundTicks, logTicks, tickText, isSmall } = window.overlapWords  // from words.js
  const { askedWith, rowOf, ranked } = window.overlapRank  // from rank.js

  /* Calculators. The formula arrives as nested lists and is computed by name, so that nothing is run as code. */
  const OPERATIONS = {
    "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b, "**": (a, b) => a ** b,
    "//": (a, b) => Math.floor(a / b), "%": (a, b) => a - b * Math.floor(a / b),
    ">": (a, b) => a > b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, "<=": (a, b) => a <= b,
    "==": (a, b) => a === b, "!=": (a, b) => a !== b, abs: Math.abs, max: Math.max, min: Math.min,
    round,
  }
  const compute = (term, numbers) => {
    if (typeof term === "string") return numbers[term]
    if (!Array.isArray(term)) return term
    const [kind, ...terms] = term
    if (kind === "let") return compute(terms[2], { ...numbers, [terms[0]]: compute(terms[1], numbers) })
    if (kind === "if") return compute(compute(terms[0], numbers) ? terms[1] : terms[2], numbers)
    return OPERATIONS[kind](...terms.map(each => compute(each, numbers)))
  }
  const part = (input, selector) => input.closest(".ov-input").querySelector(selector)

  /* As `stops` in overlap/blocks/calculator.py. */
  const stopsOf = input => {
    const [low, high, last] = [input.min, input.max, part(input, "[type=range]").max].map(Number), isLong = low > 0 && high / low >= 50
    const stop = share => Number((isLong ? low * (high / low) ** share : low + (high - low) * share).toPrecision(4))
    return Array.from({ length: last + 1 }, (_, at) => at === 0 ? low : at === last ? high : stop(at / last))
  }

  /* Where a number stands among an input's stops: 1.5 is between the second and the third. */
  const placeOf = (number, stops) => {
    const next = stops.findIndex(stop => stop >= number)
    return next < 1 ? 0 : next - (stops[next] - number) / (stops[next] - stops[next - 1])
  }

  /* What is wrong with a field, and what is allowed; "" where nothing is. */
  const amiss = input => {
    const { badInput, valueMissing, rangeUnderflow, rangeOverflow, stepMismatch } = input.validity
    const text = `${input.value} ${part(input, ".ov-unit").textContent}`.trim()
    const why = badInput ? translated("This is not a number.") : valueMissing ? translated("This field is empty.")
      : rangeUnderflow ? translated("{0} is too small.", text) : rangeOverflow ? translated("{0} is too large.", text)
        : stepMismatch ? translated("{0} is not a whole number.", text) : ""
    const [low, high] = [input.min, input.max].map(bound => Number(bound).toLocaleString("en-US", { maximumSignificantDigits: 9 }))
    const allowed = input.step === "1" ? translated("Enter a whole number from {0} to {1}.", low, high)
      : translated("Enter a number from {0} to {1}.", low, high)
    return why && `${why} ${allowed}`
  }

  const ticksOf = (low, high, isLog) => isLog ? logTicks(low, high, 5) : roundTicks(low, high, 4)

  /* Where a curve first meets its limit, or leaves it; undefined where it does neither. */
  const meeting = (stops, valueAt, limit) => {
    const side = value => Math.abs(value - limit) <= 1e-9 * limit ? 0 : Math.sign(value - limit)
    const first = side(valueAt(stops[0])), after = stops.findIndex(stop => side(valueAt(stop)) !== first)
    if (after < 0) return { side: first }
    let [before, there] = [stops[after - 1], stops[after]]
    for (let halves = 0; halves < 50; halves++) {
      const middle = (before + there) / 2
      if (side(valueAt(middle)) === first) before = middle
      else there = middle
    }
    return { side: first, at: there }
  }

  /* The result along one input: both axes with numbers, the limit where there is one, and where the reader is. Results that span
     more than a factor of ten get a logarithmic axis: on an even one most of them would lie on the floor. */
  const PLOT = { left: 50, right: 312, top: 26, bottom: 152 }
  const draw = (form, inputs, numbers, result, formula) => {
    const curve = inputs.find(input => input.name === form.dataset.curve), stops = stopsOf(curve)
    const valueAt = stop => compute(formula, { ...numbers, [curve.name]: stop })
    const drawn = stops.map(valueAt)
    const bound = form.dataset.limit ? compute(JSON.parse(form.dataset.limit), numbers) : NaN
    const limit = Number.isFinite(bound) && bound > 0 ? bound : NaN
    const seen = [...drawn, result, limit].filter(Number.isFinite), least = Math.min(...seen)
    const isLog = least > 0 && Math.max(...seen) > 10 * least
    const low = isLog ? least / 1.5 : 0, high = Math.max(...seen, 1e-9) * (isLog ? 1.3 : 1.1)
    const share = isLog ? value => Math.log(value / low) / Math.log(high / low) : value => value / high
    const { left, right, top, bottom } = PLOT
    const across = number => left + (right - left) * placeOf(number, stops) / (stops.length - 1)
    const down = value => bottom - (bottom - top) * share(value)
    const find = selector => form.querySelector(`svg ${selector}`)
    const place = (selector, attributes, text) => {
      const mark = find(selector)
      for (const [name, value] of Object.entries(attributes)) mark.setAttribute(name, typeof value === "number" ? value.toFixed(1) : value)
      if (text !== undefined) mark.textContent = text
    }
    const rows = ticksOf(low, high, isLog).map(value =>
      `<path d="M${left} ${down(value).toFixed(1)}H${right}"/><text x="${left - 5}" y="${(down(value) + 4).toFixed(1)}" text-anchor="end">${tickText(value)}</text>`)
    const ends = [stops[0], stops.at(-1)], isEven = ends[1] - stops.at(-2) < 10 * (stops[1] - ends[0])
    const columns = ticksOf(...ends, !isEven).map(value => {
      const x = across(value), text = tickText(value), isLast = x + 3.3 * text.length > right + 8  // half of its width
      return `<path d="M${x.toFixed(1)} ${bottom}v4"/><text x="${x.toFixed(1)}" y="${bottom + 16}" text-anchor="${isLast ? "end" : "middle"}"${
        isLast ? ` dx="${Math.min(8, right + 8 - x).toFixed(1)}"` : ""}>${text}</text>`
    })
    find(".ov-ticks").innerHTML = rows.join("") + columns.join("") + `<path d="M${left} ${bottom}H${right}"/>`
    place("polyline", { points: drawn.map((value, at) => `${(left + (right - left) * at / (stops.length - 1)).toFixed(1)},${down(value).toFixed(1)}`).join(" ") })

    const [x, y] = [across(numbers[curve.name]), down(result)], isRight = x > (left + right) / 2
    const isUnder = y >= down(limit) && y < down(limit) + 26 && y < bottom - 18  // its number would stand on the limit's line
    place(".ov-dot", { cx: x, cy: y })
    place(".ov-guide", { d: `M${left} ${y.toFixed(1)}H${x.toFixed(1)}V${bottom}` })
    place(".ov-yours", { x: x + (isRight ? -7 : 7), y: isUnder || y < top + 16 ? y + 15 : y - 7, "text-anchor": isRight ? "end" : "start" }, shown(result))

    const line = form.querySelector(".ov-limit"), has = Number.isFinite(limit)
    for (const selector of [".ov-ceiling", ".ov-named", ".ov-meets"]) find(selector).style.display = has ? "" : "none"
    if (line) line.hidden = !has
    if (!has) return
    const { side, at } = meeting(stops, valueAt, limit), label = form.dataset.limitLabel
    place(".ov-ceiling", { d: `M${left} ${down(limit).toFixed(1)}H${right}` })
    find(".ov-meets").style.display = at === undefined ? "none" : ""
    if (at !== undefined) place(".ov-meets", { cx: across(at), cy: down(limit) })
    const isBelow = down(limit) < top + 4 || (y <= down(limit) && y > down(limit) - 26 && !isUnder && down(limit) < bottom - 18)
    place(".ov-named", { x: isRight ? left + 4 : right, y: down(limit) + (isBelow ? 13 : -5), "text-anchor": isRight ? "start" : "end" }, `${label}: ${shown(limit)}`)
    const where = at === undefined ? "" : `${curve.name} = ${shown(curve.step === "1" ? Math.ceil(at - 1e-9) : at)} ${part(curve, ".ov-unit").textContent}`.trim()
    line.textContent = translated("Dashed line: {0}, {1}.", label, shown(limit)) + " " + (
      where ? translated(side ? "The curve reaches it at {0}." : "The curve leaves it at {0}.", where)
        : translated(side < 0 ? "The curve does not reach it." : side ? "The whole curve is above it." : "The curve lies on it."))
  }

  /* What the calculator says of the numbers, in sentences; of a number that is not allowed, that it cannot. */
  const judge = (form, numbers, result, why) => {
    const line = form.querySelector(".ov-verdict")
    if (!line) return
    const known = { ...numbers, result, limit: form.dataset.limit ? compute(JSON.parse(form.dataset.limit), numbers) : NaN }
    const said = why ? [translated("No verdict: {0}", why)] : JSON.parse(form.dataset.says).filter(([condition]) => compute(condition, known))
      .map(([, parts]) => parts.map((part, at) => at % 2 ? shown(compute(part, known)) : part).join(""))
    line.classList.toggle("ov-none", Boolean(why))
    if (line.textContent !== said.join(" ")) line.textContent = said.join(" ")
  }

  const calculate = form => {
    const inputs = [...form.querySelectorAll("[type=number]")]
    let first = ""
    for (const input of inputs) {
      const why = amiss(input), line = part(input, ".ov-amiss")
      if (line.textContent !== why) line.textContent = why
      first ||= why && `${input.name}: ${why}`
      const choice = part(input, "select")
      if (choice && !why) choice.value = Math.round(input.valueAsNumber)
      input.ariaInvalid = String(Boolean(why))
      if (!why) part(input, "[type=range]").value = placeOf(input.valueAsNumber, stopsOf(input))
    }
    const formula = JSON.parse(form.dataset.formula)
    const numbers = Object.fromEntries(inputs.map(input => [input.name, input.valueAsNumber]))
    const result = form.checkValidity() ? compute(formula, numbers) : NaN
    form.querySelector(".ov-last").hidden = Number.isFinite(result)
    judge(form, numbers, result, first)
    if (!Number.isFinite(result)) return
    form.querySelector("output").textContent = shown(result)

    draw(form, inputs, numbers, result, formula)
  }

  /* A calculator begins with what the shown machine gave; what the reader has changed stays. */
  const begin = form => {
    const start = JSON.parse(form.dataset.given)
    for (const input of form.querySelectorAll("[type=number]")) {
      const slider = part(input, "[type=range]")
      if (input.disabled) {
        input.disabled = slider.disabled = false
        const choice = part(input, "select")
        if (choice) {
          choice.disabled = false
          choice.addEventListener("input", event => {
            event.stopPropagation()  // the form would set the choice back to the number
            input.value = choice.value
            input.dispatchEvent(new Event("input", { bubbles: true }))
          })
        }
        slider.addEventListener("input", () => {
          const stop = stopsOf(input)[slider.value]
          input.value = input.step === "1" ? Math.round(stop) : stop
        })
        form.addEventListener("submit", event => event.preventDefault())
        form.addEventListener("input", event => {
          if (event.target === input || event.target === slider) input.dataset.changed = ""
          calculate(form)
        })
      }
      if (!("changed" in input.dataset)) input.value = start[input.name]
    }
    calculate(form)
  }

  const narrow = matchMedia(`(max-width: ${window.overlapNarrow})`)  // from generated/machines.js

  /* Arrow keys, a pointer or a finger move between the marks of a picture; the line below it tells the value. */
  const speak = (box, told, label) => {
    const marks = [...box.querySelectorAll(".ov-point")]
    box.role = marks.length ? "group" : "img"
    box.ariaLabel = label + (marks.length ? translated(" Arrow keys tell its {0} values.", marks.length) : "")
    if (!marks.length) return
    for (const mark of marks) mark.replaceChildren(mark.textContent)  // the line tells it at once, a title would do so again, late
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

  /* A picture of a reader's file may hold anything: what pictures of this book have none of is taken out, and so is the style
     of a picture as a file, in whose place a page has one. */
  const harmless = svg => {
    for (const part of [svg, ...svg.querySelectorAll("*")]) {
      if (!/^(svg|g|path|rect|line|circle|title|text|tspan)$/.test(part.localName)) part.remove()
      for (const { name, value } of [...part.attributes]) {
        if (/^on|href|src/i.test(name) || /url|["'\\@]/i.test(value)) part.removeAttribute(name)
      }
    }
    return svg
  }

  /* Pictures beside each other ask for their room; one in a card is small, and has the form that its page asks for. */
  const isSmallHere = picture => picture.closest(".ov-two, .ov-twin") ? isSmall(picture.closest(".ov-figure")) : narrow.matches

  const inline = async picture => {
    const image = picture.querySelector("img")
    const small = isSmallHere(picture)
    if (!image.complete) await image.decode().catch(() => null)  // then its bytes are at hand, and are not fetched again
    const drawn = small ? picture.querySelector("source").srcset : image.src
    const answer = await fetch(drawn, { cache: "force-cache" }).catch(() => null)
    if (!answer?.ok || picture.hidden || !picture.isConnected) return
    const svg = harmless(new DOMParser().parseFromString(await answer.text(), "image/svg+xml").documentElement)
    if (svg.localName !== "svg") return
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
    for (const picture of document.querySelectorAll(".ov-figure picture:not([hidden])")) {
      inView.observe(picture)
    }
  }

  const redraw = () => {
    for (const part of document.querySelectorAll(".ov-picture, .ov-picture + .ov-told")) part.remove()
    for (const picture of document.querySelectorAll(".ov-figure picture")) {
      picture.hidden = false
    }
    watch()
  }
  narrow.addEventListener("change", redraw)

  /* The choices of a guess stand in another order each time: the place of the right one says nothing. The letters stay. */
  const shuffle = () => {
    for (const field of document.querySelectorAll(".ov-guess fieldset:not([data-shuffled])")) {
      field.dataset.shuffled = ""
      const choices = [...field.querySelectorAll("label")], letters = choices.map(choice => choice.querySelector("b").textContent)
      for (let last = choices.length - 1; last > 0; last--) {
        const other = Math.floor(Math.random() * (last + 1))
        const moved = choices[last]
        choices[last] = choices[other]
        choices[other] = moved
      }
      field.append(...choices)
      for (const [place, choice] of choices.entries()) choice.querySelector("b").textContent = letters[place]
    }
  }

  /* A guess opens its answer, and the first choice counts: at the end of the answer and of the chapter, until the page is left. */
  document.addEventListener("change", ({ target }) => {
    const guess = target.closest(".ov-guess")
    if (!guess || !target.matches("fieldset input")) return
    guess.querySelector("details").open = true
    guess.dataset.right ??= String(target.parentElement.matches(".ov-right"))
    const guesses = [...document.querySelectorAll(".ov-guess")], made = guesses.filter(({ dataset }) => dataset.right)
    const right = made.filter(({ dataset }) => dataset.right === "true").length, left = guesses.length - made.length
    for (const place of document.querySelectorAll("#evidence, #you-can-now")) {
      let score = place.previousElementSibling
      if (!score?.matches(".ov-score")) {
        score = Object.assign(document.createElement("p"), { className: "ov-score" })
        place.before(score)
      }
      score.textContent = left ? translated("{0} of {1} guessed right; {2} more in this chapter.", right, made.length, left)
        : translated("{0} of {1} guessed right.", right, made.length)
    }
  })

  /* What marks and folds open is in a file of its own for each page. Where it cannot be fetched, their links lead to it. */
  const files = new Map()
  const fetched = async ({ href }) => {
    const [file, id] = href.split("#")
    if (!files.has(file)) {
      const read = fetch(file).then(answer => answer.text()).then(text => new DOMParser().parseFromString(text, "text/html"))
      files.set(file, read)
      read.catch(() => files.delete(file))
    }
    return document.importNode((await files.get(file)).getElementById(id), true)
  }

  /* The theme has put its buttons on the code that the page came with, and lets the keyboard scroll it. */
  const wide = new ResizeObserver(seen => {
    for (const { target } of seen) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1
  })
  let codes = 0
  const copyable = place => {
    for (const code of place.querySelectorAll("pre:not(.ov-text) > code")) {
      const bar = document.createElement("nav"), button = document.createElement("button")
      code.parentElement.id = `ov-code-${codes++}`
      bar.className = "md-code__nav"
      Object.assign(button, { className: "md-code__button", title: translated("Copy to clipboard") })
      Object.assign(button.dataset, { clipboardTarget: `#${code.parentElement.id} > code`, mdType: "copy" })
      bar.append(button)
      code.before(bar)
      wide.observe(code)
    }
  }

  /* Code and outputs of a row come when a reader is about to open it. */
  const filled = async row => {
    const places = [...row.querySelectorAll(".ov-later")]
    const parts = await Promise.all(places.map(place => fetched(place.querySelector("a")))).catch(() => [])
    const arrived = places.filter((place, i) => {
      if (!place.isConnected || !parts[i]) return false
      copyable(parts[i])
      place.replaceWith(...parts[i].childNodes)
      return true
    })
    if (!arrived.length) return false
    row.dispatchEvent(new CustomEvent("ov-filled", { bubbles: true }))
    mend()
    equip(row)
    return true
  }
  for (const event of ["pointerover", "focusin"]) {
    document.addEventListener(event, ({ target }) => {
      const row = target.closest?.(".ov-row > summary")?.parentElement
      if (row) filled(row)
    })
  }
  document.addEventListener("toggle", ({ target }) => target.matches(".ov-row[open]") && filled(target), true)

  /* Their file is there before: what comes late would move the rows below. */
  const nearRows = new IntersectionObserver(seen => {
    for (const { isIntersecting, target } of seen) {
      const link = isIntersecting && target.querySelector(".ov-later > a")
      if (link) fetched(link).catch(() => null)
      if (isIntersecting) nearRows.unobserve(target)
    }
  }, { rootMargin: "400px" })

  /* To be found by the browser, it has to be there. */
  document.addEventListener("keydown", event => {
    const isFind = event.key === "F3" || (event.key === "f" && (event.ctrlKey || event.metaKey))
    if (isFind) document.querySelectorAll(".ov-row").forEach(filled)
  })

  /* A Python file in the colours of the other code: strings, comments, keywords, numbers. */
  const WORDS = "and as assert async await break class continue def del elif else except finally for from global if import in is lambda "
    + "nonlocal not or pass raise return try while with yield True False None"
  const PYTHON = new RegExp(String.raw`("""[^]*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(#[^\n]*)|\b(${WORDS.replaceAll(" ", "|")})\b|\b(\d[\w.]*)`, "g")
  const coloured = text => {
    const parts = []
    let at = 0
    for (const match of text.matchAll(PYTHON)) {
      const word = document.createElement("i")
      word.className = ["s2", "c1", "k", "mi"][match.slice(1).findIndex(Boolean)]
      word.textContent = match[0]
      parts.push(text.slice(at, match.index), word)
      at = match.index + match[0].length
    }
    return [...parts, text.slice(at)]
  }

  /* A file is fetched when a reader opens it, and shown without what comments say to linters. */
  document.addEventListener("change", async event => {
    if (!event.target.matches(".ov-choice [value=file]")) return
    const views = event.target.closest(".ov-views"), link = views.querySelector("p.ov-file > a")
    if (link) link.parentElement.replaceWith(...(await fetched(link).catch(() => link.parentElement)).children)
    for (const file of views.querySelectorAll(".ov-file")) {
      if (!file.dataset.source || file.querySelector("pre")) continue
      const text = document.createElement("pre")
      text.tabIndex = 0
      text.className = "highlight"
      file.append(text)
      const answer = await fetch(file.dataset.source).catch(() => null)
      if (answer?.ok) text.append(...coloured((await answer.text()).replace(new RegExp(window.overlapForTools, "g"), "")))
      else text.remove()
    }
  })

  /* Perfetto takes a trace from the page that opened it: it answers PING when it is ready. */
  const PERFETTO = "https://ui.perfetto.dev"
  const traces = within => {
    for (const place of within.querySelectorAll(".ov-perfetto:not(:has(button))")) {
      const button = document.createElement("button")
      button.type = "button"
      button.textContent = translated("open in Perfetto")
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
  const exploring = within => {
    for (const row of within.querySelectorAll(".ov-run .ov-explorable:empty")) {
      const figure = row.parentElement, button = document.createElement("button")
      button.type = "button"
      button.textContent = translated("Explore this timeline")
      button.addEventListener("click", async () => {
        if (!figure.querySelector(".ov-explore")) {
          const { explore } = await import(new URL("timeline.js", ASSETS)), before = scrollY
          const box = await explore(row, figure.dataset.timelines)
          box.scrollIntoView({ block: "nearest", behavior: "instant" })  // if it does not fit below its picture
          const isAway = scrollY !== before
          box.addEventListener("closed", () => { if (isAway) scrollTo({ top: before, behavior: "instant" }) })
        }
        figure.querySelector(".ov-timeline")?.focus({ preventScroll: true })
      })
      row.append(button)
    }
  }

  /* The clinic's game begins when it comes into view; the picked machine's trace is played. */
  const nearPlay = new IntersectionObserver(async seen => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue
      nearPlay.unobserve(target)
      const { play } = await import(new URL("fault.js", ASSETS))
      const [faults, steps] = [".ov-faults table", ".ov-steps table"].map(name => document.querySelector(name))
      const figure = document.querySelector(`.ov-part[data-name="${target.dataset.snippet}"] .ov-figure[data-timelines]`)
      await play(target, faults, steps, figure.dataset.timelines)
    }
  }, { rootMargin: "400px" })
  const playing = () => {
    for (const place of document.querySelectorAll(".ov-find-fault:empty")) nearPlay.observe(place)
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
  const opened = async () => {
    const id = decodeURIComponent(location.hash.slice(1)), row = document.getElementById(id)?.closest(".ov-row")
    const came = row && await filled(row), mark = document.getElementById(id)
    const words = mark?.closest("[hidden]") && document.querySelector(".ov-narrow.ov-chosen [name=words]")
    if (words) {
      words.value = ""
      words.dispatchEvent(new Event("input", { bubbles: true }))
    }
    for (const other of document.querySelectorAll(".ov-sought")) other.classList.remove("ov-sought")
    mark?.closest(".ov-symptom")?.classList.add("ov-sought")
    let closed = mark?.closest("details:not([open])")
    const folded = Boolean(closed)
    for (; closed; closed = closed.parentElement.closest("details:not([open])")) closed.open = true
    if (mark?.matches(".ov-take:has(+ .ov-views [value=file]:checked)")) mark.nextElementSibling.querySelector("[value=output]")?.click()  // how a figure was measured
    if (folded || came) mark.scrollIntoView()
    else if (mark && followed === location.href) setTimeout(() => location.replace(location.hash))
    if (mark?.matches(".ov-mark")) document.getElementById(`${mark.id}-evidence`)?.matches(":popover-open") || mark.click()
  }
  addEventListener("hashchange", opened)

  /* What the text says where a mark stands: from the end of the sentence before up to the mark. */
  const sentenceOf = mark => {
    const words = document.createRange()
    words.setStart(mark.closest("p, li, td, dd, figcaption") ?? mark.parentElement, 0)
    words.setEndBefore(mark)
    const said = words.cloneContents()
    for (const other of said.querySelectorAll(".ov-mark")) other.remove()
    return said.textContent.replace(/\s+/g, " ").replace(/ (?=[.,;:)])/g, "").trim().split(/(?<=[.!?][")]?) |(?<=[。！？])/).at(-1)
  }

  /* The evidence of a mark begins with the words that it stands behind; their values are of the picked machine. */
  const quote = (mark, evidence) => {
    evidence.querySelector(".ov-in-text")?.remove()
    const said = sentenceOf(mark), checked = evidence.querySelector("p")
    if (checked.textContent.includes(said)) return
    const first = document.createElement("p"), head = document.createElement("b"), text = document.createElement("span")
    first.className = "ov-in-text"
    head.textContent = "In the text:"
    Object.assign(text, { lang: document.documentElement.lang, textContent: said })
    first.append(head, " ", text)
    checked.before(first)
  }

  /* A mark opens its evidence. */
  const openEvidence = async mark => {
    const place = document.querySelector("article")
    try {
      const made = document.getElementById(`${mark.id}-evidence`) ?? await fetched(mark)
      if (!made.isConnected) {
        const id = `${mark.id}-evidence`
        Object.assign(made, { id, popover: "auto", role: "dialog", ariaLabel: "Evidence", lang: "en" })
        const close = made.querySelector(".ov-close")
        close.setAttribute("popovertarget", id)
        made.prepend(close)  // at the top it is seen however long the evidence is
        place.append(made)
      }
      quote(mark, made)
      const beside = document.documentElement.clientWidth - place.getBoundingClientRect().right
      made.style.setProperty("--beside", `${beside}px`)  // the contents there stay free
      made.showPopover({ source: mark })
    } catch {
      location.assign(mark.href)
    }
  }
  let pressed = null
  addEventListener("pointerdown", () => { pressed = document.querySelector(".ov-evidence:popover-open") }, true)
  document.addEventListener("click", event => {
    const mark = event.target.closest(".ov-mark[href]")
    if (!mark || event.ctrlKey || event.metaKey || event.shiftKey) return
    event.preventDefault()
    if (pressed?.id !== `${mark.id}-evidence`) openEvidence(mark)  // else the press has closed it
    pressed = null
  })
  document.addEventListener("toggle", async ({ target }) => {
    const link = target.matches(".ov-rest[open]") && target.querySelector("summary + a")
    if (link) link.replaceWith(await fetched(link).catch(() => link))
  }, true)

  /* The search knows a symptom or a term as a document of its own, whose address the page turns into that of the row. */
  const entry = () => {
    const url = new URL(location.href), row = url.searchParams.get("entry")
    if (!row) return
    url.searchParams.delete("entry")
    url.hash = row
    history.replaceState(history.state, "", url)
    const show = () => document.getElementById(row)?.scrollIntoView()
    opened()
    if (document.readyState !== "complete") return addEventListener("load", show, { once: true })
    location.replace(url.hash)  // while a page loads, the theme would answer that with a scroll to the top
    show()
  }

  /* A link from the evidence to another place of its page closes it, else it would lie over that place. */
  document.addEventListener("click", event => {
    const link = event.target.closest(".ov-evidence a:not(.headerlink)")
    if (link?.hash && link.pathname === location.pathname) link.closest(".ov-evidence").hidePopover()
  })

  /* Indexes: words and chips choose rows, and the address remembers them. Without this script all rows are there. */
  const filter = () => {
    const tables = [...document.querySelectorAll(".ov-index:not(.ov-counts)")]
    if (!tables.length || document.querySelector(".ov-filters")) return
    const machineOf = cell => cell.closest("table").tHead.rows[0].cells[cell.closest("td").cellIndex].dataset.machine
    const rows = tables.flatMap(table => [...table.querySelectorAll("tbody tr")].map(row => ({
      row, table, text: `${table.ariaLabel} ${row.dataset.file ?? ""} ${row.querySelector("a")?.getAttribute("href")} ${row.textContent}`.toLowerCase(),
      states: Object.fromEntries([...row.querySelectorAll(".ov-cell")].map(cell =>
        [machineOf(cell), cell.querySelector(".ov-unseen").textContent])),
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
      for (const { label, name } of window.overlapMachines ?? []) if (rows.some(({ states }) => name in states)) on.add(new Option(label, name))
      add("on", "On", on)
      on.value = asked.get("on") ?? ""
    }
    const chips = claims ? { verdict: Object.keys(window.overlapMarks) } : { needs: ["runs on a laptop"] }
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

  /* On a phone a group of symptoms is a row that opens, as evidence is: else the page is thirty screens long. */
  const closed = list => {
    const group = document.createElement("details"), summary = document.createElement("summary")
    const heading = list.previousElementSibling
    group.className = "ov-row"
    heading.before(group)
    heading.querySelector(".headerlink")?.remove()
    summary.append(heading)
    group.append(summary)
    while (group.nextElementSibling?.matches("p, .ov-symptoms")) group.append(group.nextElementSibling)
    return group
  }

  /* The theme's search with these words. */
  const seek = text => {
    const field = document.querySelector(".md-search__input"), toggle = document.querySelector("#__search")
    if (!toggle.checked) toggle.click()  // the theme hears the click alone
    field.value = text
    field.focus()
    field.dispatchEvent(new KeyboardEvent("keyup"))
  }

  /* Symptoms: words, or a whole error message, choose rows, which stand in a list of their own then. */
  const choose = () => {
    const lists = [...document.querySelectorAll(".ov-symptoms:not(.ov-statements)")]
    if (!lists.length || document.querySelector(".ov-filters")) return
    const kept = lists.map(list => [...list.children]), all = kept.flat()
    const rows = all.map(row => {
      const [title, ...rest] = [...row.children].map(({ textContent }) => textContent)
      return rowOf(row, title, rest.join(" "))
    })
    const groups = narrow.matches ? lists.map(closed) : []
    const heads = lists.map((list, i) => groups[i] ?? list.previousElementSibling)
    const form = Object.assign(document.createElement("form"), { className: "ov-filters ov-narrow", ariaLabel: "Rows to show" })
    const words = Object.assign(document.createElement("input"), { type: "search", name: "words" })
    const label = document.createElement("label"), said = document.createElement("output")
    const more = Object.assign(document.createElement("button"), { className: "ov-button", type: "button", textContent: "Search the book for it", hidden: true })
    const best = Object.assign(document.createElement("div"), { className: "ov-symptoms", hidden: true })
    label.append("Words of what you see, or a whole error message", words)
    form.append(label, said, more)
    more.addEventListener("click", () => seek(askedWith(words.value).join(" ")))
    form.addEventListener("submit", event => event.preventDefault())
    form.addEventListener("input", () => {
      const asked = words.value.trim() !== "", { known, chosen } = asked ? ranked(rows, words.value) : { known: true, chosen: [] }
      kept.forEach((children, i) => lists[i].append(...children))
      best.replaceChildren(...chosen)
      best.hidden = !chosen.length
      for (const part of [...lists, ...heads]) part.hidden = asked
      for (const contents of document.querySelectorAll(".md-nav--secondary")) contents.hidden = asked
      for (const group of groups) group.open = false
      form.classList.toggle("ov-chosen", asked)
      said.textContent = !asked ? "" : known ? `${chosen.length} of ${all.length} symptoms, the nearest first`
        : `No symptom has these words.${chosen.length ? " The nearest, perhaps not yours:" : ""}`
      more.hidden = known
    })
    heads[0].before(form, best)
  }

  /* The theme gives each code block a landmark when it comes near, all of one name. */
  const nameCode = () => {
    for (const [i, bar] of document.querySelectorAll(".md-code__nav").entries()) bar.ariaLabel = translated("Code {0}", i + 1)
    for (const button of document.querySelectorAll(".md-code__button[data-md-type=copy]")) button.title = translated("Copy to clipboard")
  }
  const named = new MutationObserver(nameCode)

  /* The theme's notice of what was copied, in the language of the page. */
  const notice = new MutationObserver(([{ target }]) => {
    if (target.textContent === "Copied to clipboard") target.textContent = translated("Copied to clipboard")
  })

  /* What the theme's search says, in the language of the page; the theme keeps the language of the page that was loaded first. */
  const FOUND = [
    "Initializing search", "Type to start searching", "No matching documents", "1 matching document", "{0} matching documents",
    "1 more on this page", "{0} more on this page",
  ]
  const said = new WeakMap()
  const sayFound = () => {
    const parts = document.querySelectorAll(".md-search-result__meta, .md-search-result__more summary div")
    for (const { firstChild: text } of parts) {
      if (text?.nodeType !== Node.TEXT_NODE) continue
      const known = said.get(text), english = known?.own === text.data ? known.english : text.data, plain = english.trim()
      const count = /^[\d.]+k?(?= )/.exec(plain)?.[0], form = FOUND.includes(plain) ? plain : plain.replace(count, "{0}")
      if (!FOUND.includes(form)) continue
      const told = translated(form, count), own = told === plain ? english : told
      said.set(text, { own, english })
      if (own !== text.data) text.data = own
    }
  }
  const found = new MutationObserver(sayFound)
  const nameSearch = () => {
    const search = document.querySelector(".md-search")
    if (!search) return
    const field = search.querySelector(".md-search__input"), reset = search.querySelector("[type=reset]")
    for (const part of [search, field, search.querySelector(".md-search__options")]) part.ariaLabel = translated("Search")
    field.placeholder = translated("Search")
    reset.ariaLabel = reset.title = translated("Clear")
    found.observe(search.querySelector(".md-search-result"), { childList: true, subtree: true })
    sayFound()
  }

  /* What the theme and the notebook pages leave without a name or out of the keyboard's reach. */
  const mend = () => {
    nameSearch()
    /* The theme's search hears keys alone: not a mouse that pastes, a phone's menu, a voice. */
    const asked = document.querySelector(".md-search__input")
    if (asked) asked.oninput = () => asked.dispatchEvent(new KeyboardEvent("keyup"))
    for (const link of document.querySelectorAll(".headerlink")) {
      Object.assign(link, { tabIndex: -1, title: translated("Permanent link") })  // the contents lead there, too
    }
    for (const code of document.querySelectorAll("code")) code.translate = false
    for (const value of document.querySelectorAll("data, .ov-cell")) value.tabIndex = -1  // a finger that taps it is told its note
    /* The drawer of a narrow page, which the keyboard opens and closes as a finger does. */
    const drawer = document.querySelector(".md-header__button[for=__drawer]"), toggle = document.querySelector("#__drawer")
    if (drawer && toggle) {
      Object.assign(drawer, { tabIndex: 0, role: "button", ariaLabel: translated("Chapters") })
      drawer.onkeydown = event => {
        if (event.key !== " ") return  // Enter the theme knows
        event.preventDefault()
        toggle.click()
      }
      toggle.onchange = () => toggle.checked && document.activeElement === drawer && document.querySelector(".md-sidebar--primary a").focus()
    }
    nameCode()
    const dialog = document.querySelector(".md-dialog__inner")
    if (dialog && document.documentElement.lang !== "en") notice.observe(dialog, { childList: true, characterData: true })
    named.observe(document.querySelector(".md-content") ?? document.body, { childList: true, subtree: true })
    const scrolling = ".jupyter-wrapper :is(.highlight-ipynb, .jp-OutputArea-output, .jp-RenderedMarkdown pre)"
    for (const box of document.querySelectorAll(scrolling)) box.tabIndex = 0
    /* On a phone a row is a card, whose cells say what their column is called; and the name of a machine is not broken after its number. */
    for (const table of document.querySelectorAll(".md-typeset table:is(:not([class]), .ov-matrix)")) {
      const heads = [...table.querySelectorAll("thead :is(th, td)")].map(head => {
        const heading = head.cloneNode(true)
        for (const part of heading.querySelectorAll("small")) part.remove()
        return heading.textContent.trim()
      })
      for (const cell of table.querySelectorAll("tbody td:not([data-label])")) cell.dataset.label = heads[cell.cellIndex] ?? ""
    }
    for (const head of document.querySelectorAll("th")) {
      const name = head.firstChild
      if (name?.nodeType === Node.TEXT_NODE) name.data = name.data.replace(/^(\d+) × (?=\S)/, "$1\u00a0×\u00a0")
    }
  }

  document.addEventListener("keydown", event => {
    const toggle = document.querySelector("#__drawer")
    if (event.key !== "Escape" || !toggle?.checked) return
    toggle.click()
    document.querySelector(".md-header__button[for=__drawer]").focus()
  })

  /* Rows of evidence: all at once, to read on, or to print. */
  const openAll = () => {
    const rows = [...document.querySelectorAll(".ov-row")]
    if (!rows.length || document.querySelector(".ov-open-all")) return
    const button = document.createElement("button")
    button.className = "ov-open-all"
    button.textContent = translated("Open all")
    button.addEventListener("click", () => {
      const open = !rows.every(row => row.open)
      for (const row of rows) row.open = open
      button.textContent = translated(open ? "Close all" : "Open all")
    })
    rows[0].before(button)
    for (const row of rows) nearRows.observe(row)
  }

  /* Each line of code that wraps on a phone becomes an element: on a narrow page its rest, where it wraps, is indented further than it is.
     It may break behind a bracket that opens, and before the dot that follows one that closes: a long name stays whole, and a short text. */
  const breakable = line => line.replace(/(<i class="s\w*[^>]*>[^<]*|<[^>]*>)|[([](?!(?:<[^>]*>)*[)\]])|\)(?=(?:<[^>]*>)*\.)/g, (found, tag) => tag || found + "<wbr>")
  const whole = line => line.replace(/<i class="s2">(?="[^"<]{1,24}"<)/g, '<i class="s2 ov-together">')
  const hanging = () => {
    for (const code of document.querySelectorAll(":is(.ov-paste, .ov-wraps) code:not(:has(.ov-line))")) {
      code.innerHTML = code.innerHTML.replace(/(?:<[^>]*>)*( *).*\n?/g, (line, spaces) => line &&
        `<span class="ov-line" style="--indent: ${spaces.length}">${breakable(whole(line))}</span>`)
    }
  }

  /* What an output needs, again where it shows another machine. */
  const equip = place => {
    for (const source of place.querySelectorAll(".ov-twin source, .ov-two source")) {
      if (isSmallHere(source.parentElement)) source.media = "all"
    }
    traces(place)
    exploring(place)
    watch()
  }
  document.addEventListener("ov-shown", ({ target }) => target.matches(".ov-calculator") ? begin(target) : equip(target))

  const start = () => {
    filter()
    choose()
    mend()
    equip(document)
    document.querySelectorAll(".ov-calculator").forEach(begin)
    playing()
    copying()
    hanging()
    openAll()
    shuffle()
    entry()
    opened()
  }

  window.location$?.subscribe(() => setTimeout(entry))  // from one symptom to another the theme changes the address alone
  location.protocol === "file:" || !window.document$ ? start() : window.document$.subscribe(start)
})()
