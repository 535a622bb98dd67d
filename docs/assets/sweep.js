/* A picture of lines or dots as a chart: its series, machines and scales can be chosen, and its values read off at a line.
   Loaded when a reader scrolls to such a picture, or asks for it. Observable Plot draws; the data are the picture's own,
   in a file beside it. The drawn picture stays in the page: it is printed, and comes back when the chart is closed. */

import { dot, line, plot, ruleX } from "./vendor/observable-plot-0.6.17.js"

const DASHES = ["", "4 2", "9 3", "1 2", "12 2 2 2"], SYMBOLS = ["circle", "square", "triangle", "diamond", "star"]
const SIGNS = ["●", "■", "▲", "◆", "★"]
const SVG = "http://www.w3.org/2000/svg"

/* Whole numbers with all their digits: 1,048,576 is a power of two; others with four. */
const written = value => value.toLocaleString("en-US", Number.isInteger(value) ? {} : { maximumSignificantDigits: 4 })

const make = (tag, name = "", text = "") => {
  const made = document.createElement(tag)
  if (name) made.className = name
  made.textContent = text
  return made
}

const svgPart = (tag, attributes, parent) => {
  const made = document.createElementNS(SVG, tag)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  parent?.append(made)
  return made
}

const svgText = (parent, x, y, text, attributes = {}) => {
  svgPart("text", { x, y, ...attributes }, parent).textContent = text
}

/* The point of a series nearest to a step. */
export const nearest = (points, x) =>
  points.reduce((best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best)

/* The steps of all series, in their order. */
export const steps = series => [...new Set(series.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b)

/* Those of the ticks whose labels do not touch; `room` is the length of the axis. */
const thinned = (ticks, room, [low, high], log, text) => {
  const place = value => room * (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low))
  let end = -Infinity
  return ticks.filter(tick => {
    const half = 3.4 * text(tick).length + 4
    if (place(tick) - half < end) return false
    end = place(tick) + half
    return true
  })
}

/* Powers of ten between two numbers; with what lies between them where they are few. */
const powers = (low, high) => {
  const between = Math.log10(high / low) < 2 ? [1, 2, 5] : [1], ticks = []
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    for (const factor of between) if (power * factor >= low && power * factor <= high) ticks.push(power * factor)
  }
  return ticks
}

/* About so many round numbers between two. */
const even = (low, high, count) => {
  const least = (high - low) / count, power = 10 ** Math.floor(Math.log10(least))
  const step = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= least)
  const first = Math.ceil(low / step)
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, number) => Number(((first + number) * step).toPrecision(12)))
}

const colour = ({ colour: number }) => number ? `var(--ov-series-${(number - 1) % 6 + 1})` : "var(--ov-ceiling)"

const choice = (text, checked, act, before = null) => {
  const label = make("label"), box = make("input")
  box.type = "checkbox"
  box.checked = checked
  box.addEventListener("change", () => act(box.checked, box))
  label.append(box, ...before ? [before] : [], make("span", "", text))
  return label
}

const group = (title, ...parts) => {
  const set = make("fieldset"), legend = make("legend", "ov-unseen", title)
  set.append(legend, ...parts)
  return set
}

const swatch = series => {
  const svg = svgPart("svg", { viewBox: "0 0 18 8", "aria-hidden": "true" })
  const look = { stroke: colour(series), "stroke-width": 2, "stroke-dasharray": series.dash || "none" }
  if (series.line) svgPart("path", { d: "M0 4H18", ...look }, svg)
  if (series.dots) svgPart("circle", { cx: 9, cy: 4, r: 3, fill: colour(series) }, svg)
  return svg
}

/* A limit at all steps is a line like any other. */
const withLimits = ({ series, limits, ...panel }) => {
  const ends = steps(series), all = [ends[0], ends.at(-1)]
  const lines = limits.map(({ name, at }) =>
    ({ name, points: all.map(x => [x, at]), colour: 0, dash: "6 3", line: true, dots: false }))
  return { ...panel, series: [...series, ...lines] }
}

const fetched = async url => {
  const answer = await fetch(url)
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`)
  return (await answer.json()).map(withLimits)
}

/* What a reader adds to a roofline: GFLOP, MB and ms make FLOP for each byte, and TFLOP/s. */
const mineOf = act => {
  const inputs = ["GFLOP", "MB", "ms"].map(unit => {
    const input = make("input")
    input.type = "number"
    input.min = 0
    input.step = "any"
    input.placeholder = input.ariaLabel = unit
    return input
  })
  const set = group("Add mine", make("span", "", "Add mine:"), ...inputs)
  set.addEventListener("input", () => {
    const [gflop, megabytes, ms] = inputs.map(input => Number(input.value))
    act(gflop > 0 && megabytes > 0 && ms > 0 ? [1e3 * gflop / megabytes, gflop / ms] : null)
  })
  return set
}

/* Put a chart in the place of a figure's picture, as high as what it replaces. `charts` are [{ machine, url }];
   the first is the figure's own, the others are fetched when they are chosen. `closed` is called at the end. */
export const explore = async (figure, charts, closed = () => {}) => {
  const atOnce = charts.filter(({ shown }, index) => shown || !index)
  const loaded = new Map(await Promise.all(atOnce.map(async ({ machine, url }) => [machine, await fetched(url)])))
  const panels = loaded.get(charts[0].machine)
  const machines = new Set(loaded.keys()), hidden = new Set()
  const row = figure.querySelector(".ov-explorable")
  const seen = [...figure.children].filter(part => part.checkVisibility() && !part.matches(".ov-data"))
  const high = seen.at(-1).getBoundingClientRect().bottom - seen[0].getBoundingClientRect().top
  const focused = figure.contains(document.activeElement)
  let number = 0, at = -1, scales = {}, mine = null

  const box = make("div", "ov-explore ov-chart"), series = make("div", "ov-legend"), canvas = make("div", "ov-sweep")
  const others = make("p", "ov-others"), tools = make("div", "ov-tools")
  box.append(series, others, canvas, tools)
  canvas.tabIndex = 0
  canvas.role = "slider"

  const chosen = () => charts.map(({ machine }, index) => ({ machine, index })).filter(({ machine }) => machines.has(machine))
  const panelOf = machine => loaded.get(machine)[number]
  const shown = machine => panelOf(machine).series.filter(({ name }) => !hidden.has(name))
  const stops = () => {
    const all = chosen().flatMap(({ machine }) => shown(machine))
    const measured = all.filter(one => one.colour)
    return steps(measured.length ? measured : all)
  }
  /* The places that the arrow keys visit: steps, or dots one by one. */
  const places = () => {
    if (panels[number].kind !== "dots") return stops().map(x => ({ x }))
    const dots = chosen().flatMap(({ machine }) => shown(machine).filter(one => one.dots)
      .flatMap(one => one.points.map(([x, y]) => ({ x, y, series: one.name, machine }))))
    return dots.sort((a, b) => a.x - b.x || a.y - b.y)
  }
  const nameOf = ({ x, y, machine }) => panelOf(machine).names.find(name => name[0] === x && name[1] === y)?.[2] ?? ""

  const values = (machine, { x }) => shown(machine).map(one => [one.name, nearest(one.points, x)[1]])

  /* What is read off, as a sentence for those who hear the page, and beside each name for those who see it. */
  const tell = () => {
    const all = places(), place = all[at], { kind, x, y } = panels[number]
    canvas.ariaValueMin = 0
    canvas.ariaValueMax = all.length - 1
    canvas.ariaValueNow = Math.max(0, at)
    if (!place) {
      const beside = chosen().filter(({ index }) => index).map(({ machine, index }) => `${machine} ${SIGNS[index % SIGNS.length]}`)
      others.textContent = kind === "dots" ? "Point at a dot to read it off." : beside.join("\n")
      canvas.ariaValueText = "nothing read off"
      for (const output of outputs.values()) output.textContent = ""
      return
    }
    if (place.y !== undefined) {
      const name = [nameOf(place), place.series, machines.size > 1 ? place.machine : ""].filter(Boolean).join(", ")
      others.textContent = `${name}: ${written(place.x)} ${x.label}, ${written(place.y)} ${y.label}`
      if (mine) others.textContent += `\nmine: ${written(mine[0])} ${x.label}, ${written(mine[1])} ${y.label}`
      canvas.ariaValueText = others.textContent
      return
    }
    const rows = chosen().map(({ machine }) => [machine, values(machine, place).map(([name, value]) => `${name} ${written(value)}`.trim()).join(" · ")])
    canvas.ariaValueText = `${x.label} ${written(place.x)}: ${rows.map(([machine, text]) => rows.length > 1 ? `${machine}: ${text}` : text).join("; ")}`
    const first = new Map(machines.has(charts[0].machine) ? values(charts[0].machine, place) : [])
    for (const [name, output] of outputs) output.textContent = first.has(name) ? written(first.get(name)) : ""
    const beside = rows.filter(([machine]) => machine !== charts[0].machine)
    others.textContent = beside.map(([machine, text]) => `${machine} ${SIGNS[charts.findIndex(one => one.machine === machine) % SIGNS.length]} ${text}`).join("\n")
  }

  const axis = (key, data) => {
    const { label, low, ticks: told } = panels[number][key], log = scales[key], bounds = [Math.min(...data), Math.max(...data)]
    const room = key === "x" ? canvas.clientWidth - 80 : 9999, words = new Map(told)
    const scale = { type: log ? "log" : "linear", axis: null, domain: bounds }
    if (key === "y" && !log) scale.domain = [Math.min(panels[number].y.log ? 0 : low, ...bounds), 1.04 * bounds[1]]
    if (key === "y" && log) scale.domain = [bounds[0] / 1.15, bounds[1] * 1.15]
    const text = value => words.get(value) ?? written(value)
    const own = key === "x" && panels[number].kind !== "dots" && stops().length <= (log ? 15 : 8) ? stops() : []
    const places = words.size && (key === "y" || log) ? [...words.keys()] : own
    let at = places.filter(tick => tick >= scale.domain[0] && tick <= scale.domain[1])
    if (!at.length) at = log ? powers(...scale.domain) : even(...scale.domain, key === "x" ? Math.max(3, Math.floor(room / 80)) : 5)
    const ticks = thinned(at, room, scale.domain, log, text)
    return { scale, label, ticks, text }
  }

  let drawing = null
  const draw = () => {
    const lines = [], dots = [], data = { x: [], y: [] }, panel = panels[number]
    for (const { machine, index } of chosen()) {
      for (const one of shown(machine)) {
        const points = one.points.filter(([x, y]) => (!scales.x || x > 0) && (!scales.y || y > 0))
        data.x.push(...points.map(([x]) => x))
        data.y.push(...points.map(([, y]) => y))
        const look = { x: "0", y: "1", stroke: colour(one) }
        if (one.line) lines.push(line(points, { ...look, strokeWidth: index ? 1.2 : 1.8, strokeOpacity: index ? 0.8 : 1, strokeDasharray: one.dash || DASHES[index % DASHES.length] }))
        const style = { x: "0", y: "1", r: index ? 3.5 : 2.8, fill: colour(one), symbol: SYMBOLS[index % SYMBOLS.length] }
        if (one.dots) dots.push(dot(points, style))
      }
    }
    drawing = null
    if (!data.x.length) return void canvas.replaceChildren(make("p", "", "Nothing is chosen."))
    at = Math.min(at, places().length - 1)
    const place = places()[at]
    tell()  // first: its lines take room from the drawing
    if (mine) data.x.push(mine[0]), data.y.push(mine[1])
    const [x, y] = ["x", "y"].map(key => axis(key, data[key]))
    const width = Math.max(260, canvas.clientWidth)
    const left = Math.max(24, 10 + 6.5 * Math.max(...y.ticks.map(tick => y.text(tick).length)))
    const grid = y.ticks.map(tick => line(x.scale.domain.map(end => [end, tick]), { x: "0", y: "1", stroke: "var(--ov-grid)", strokeWidth: 0.8 }))
    const rule = ruleX(place && place.y === undefined ? [place.x] : [], { stroke: "var(--ov-ink)", strokeOpacity: 0.5 })
    const marks = [...grid, rule, ...lines, ...dots]
    for (const edge of panel.edges) if (edge.at <= Math.max(...data.x)) marks.push(ruleX([edge.at], { stroke: "var(--ov-ceiling)", strokeDasharray: "2 3" }))
    const height = Math.max(190, canvas.clientHeight)
    drawing = plot({ width, height, marginLeft: left, marginBottom: 38, marginTop: 24, marginRight: 28, x: x.scale, y: y.scale, marks })
    const scaled = Object.fromEntries(["x", "y"].map(key => [key, drawing.scale(key)]))
    for (const tick of x.ticks) svgText(drawing, scaled.x.apply(tick), height - 22, x.text(tick), { "text-anchor": "middle" })
    for (const tick of y.ticks) svgText(drawing, left - 6, scaled.y.apply(tick) + 4, y.text(tick), { "text-anchor": "end" })
    svgText(drawing, 0, 10, y.label, { class: "ov-axis", "text-anchor": "start" })
    svgText(drawing, (left + width) / 2, height - 4, x.label, { class: "ov-axis", "text-anchor": "middle" })
    for (const edge of panel.edges.filter(({ at, name }) => name && at <= Math.max(...data.x))) {
      svgText(drawing, scaled.x.apply(edge.at) + 4, height - 46, edge.name, { class: "ov-axis", "text-anchor": "start" })
    }
    if (chosen().length === 1) write(panelOf(chosen()[0].machine).names, scaled)
    if (place?.y !== undefined) ring(scaled, [place.x, place.y])
    else if (place) svgText(drawing, Math.min(scaled.x.apply(place.x), width - 24), 20, written(place.x), { class: "ov-now", "text-anchor": "middle" })
    if (mine) {
      ring(scaled, mine, "ov-mine")
      svgText(drawing, scaled.x.apply(mine[0]) + 7, scaled.y.apply(mine[1]) + 4, "mine", { class: "ov-now", "text-anchor": "start" })
    }
    drawing.setAttribute("aria-hidden", "true")
    canvas.ariaLabel = `${y.label} over ${x.label}. Arrow keys read it off.`
    canvas.replaceChildren(drawing)
  }
  const ring = (scaled, [x, y], name = "ov-ring") =>
    svgPart("circle", { cx: scaled.x.apply(x), cy: scaled.y.apply(y), r: 5, class: name }, drawing)

  /* Names of dots, each on the first of four sides where it touches no other. */
  const write = (names, scaled) => {
    const taken = []
    for (const [x, y, name] of names) {
      const px = scaled.x.apply(x), py = scaled.y.apply(y), wide = 5.4 * name.length
      for (const [dx, dy, anchor] of [[-5, -5, "end"], [6, 10, "start"], [6, -4, "start"], [-5, 11, "end"]]) {
        const left = px + dx - (anchor === "end" ? wide : 0), top = py + dy
        if (left < 0 || left + wide > canvas.clientWidth) continue
        if (taken.some(box => left < box.left + box.wide && box.left < left + wide && Math.abs(top - box.top) < 10)) continue
        taken.push({ left, top, wide })
        svgText(drawing, px + dx, py + dy, name, { class: "ov-name", "text-anchor": anchor })
        break
      }
    }
  }

  const go = to => {
    const next = Math.max(0, Math.min(places().length - 1, to))
    if (next === at) return
    at = next
    draw()
  }
  canvas.addEventListener("keydown", event => {
    const last = places().length - 1
    const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, Home: 0, End: last }[event.key]
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return
    event.preventDefault()
    go(to)
  })
  const follow = event => {
    if (!drawing) return
    const { left, top, width } = drawing.getBoundingClientRect(), ratio = drawing.viewBox.baseVal.width / width
    const x = (event.clientX - left) * ratio, y = (event.clientY - top) * ratio
    const scaled = { x: drawing.scale("x"), y: drawing.scale("y") }
    const far = place => Math.hypot(scaled.x.apply(place.x) - x, place.y === undefined ? 0 : scaled.y.apply(place.y) - y)
    const all = places()
    go(all.indexOf(all.reduce((best, place) => far(place) < far(best) ? place : best)))
  }
  canvas.addEventListener("pointermove", follow)
  canvas.addEventListener("pointerdown", follow)

  const outputs = new Map()
  const set = () => {
    const panel = panels[number]
    outputs.clear()
    scales = { x: panel.x.log, y: panel.y.log }
    at = -1  // nothing is read off until somebody points
    const names = panel.series.map(one => {
      const output = make("b")
      outputs.set(one.name, output)
      const label = choice(one.name || panel.y.label, !hidden.has(one.name), on => {
        on ? hidden.delete(one.name) : hidden.add(one.name)
        draw()
      }, swatch(one))
      label.append(output)
      return label
    })
    series.replaceChildren(group("Series", ...names))
    const parts = []
    if (panels.length > 1) {
      const select = make("select")
      select.ariaLabel = "Panel"
      for (const [index, { title, y }] of panels.entries()) select.add(new Option(title || y.label, index, false, index === number))
      select.addEventListener("change", () => {
        number = Number(select.value)
        set()
        tools.querySelector("select").focus()
      })
      parts.push(select)
    }
    if (charts.length > 1) {
      parts.push(group("Machines", ...charts.map(({ machine, url }, index) =>
        choice(`${SIGNS[index % SIGNS.length]} ${machine}`, machines.has(machine), async (on, input) => {
          if (on && !loaded.has(machine)) {
            const other = await fetched(url).catch(() => null)
            if (other?.length !== panels.length) return void (input.disabled = true, input.checked = false)
            loaded.set(machine, other)
          }
          on ? machines.add(machine) : machines.delete(machine)
          draw()
        }))))
    }
    const positive = key => panel.series.every(({ points }) => points.every(point => point[key === "x" ? 0 : 1] > 0))
    const logs = ["x", "y"].filter(positive).map(key => choice(`log ${key}`, scales[key], on => {
      scales[key] = on
      draw()
    }))
    if (logs.length) parts.push(group("Scales", ...logs))
    if (panel.x.label === "FLOP for each byte" && panel.y.label === "TFLOP/s") {
      parts.push(mineOf(point => {
        mine = point
        draw()
      }))
    }
    const back = make("button", "", figure.querySelector("picture") ? "Show the drawn picture" : "Show the numbers")
    back.type = "button"
    back.addEventListener("click", () => {
      resized.disconnect()
      box.remove()
      figure.classList.remove("ov-explored")
      closed()
    })
    tools.replaceChildren(...parts, back)
    draw()
  }

  let width = 0, height = 0
  const resized = new ResizeObserver(() => {
    if (!canvas.clientWidth || (canvas.clientWidth === width && canvas.clientHeight === height)) return
    if (canvas.clientWidth !== width) box.style.minHeight = ""  // the picture it replaced has another height now, too
    width = canvas.clientWidth
    height = canvas.clientHeight
    draw()
  })
  box.style.minHeight = `${high}px`
  figure.classList.add("ov-explored")
  row.before(box)
  set()
  width = canvas.clientWidth
  height = canvas.clientHeight
  resized.observe(canvas)
  if (focused) canvas.focus({ preventScroll: true })
  return box
}
