/* A sweep to explore: the numbers of a picture as lines whose series, machines and scales can be chosen, and read off.
   Loaded when a reader asks for it. Observable Plot draws; the data are the tables that the page has under its pictures. */

import { read } from "./numbers.js"
import { dot, line, plot, ruleX } from "./vendor/observable-plot-0.6.17.js"

const COLOURS = [1, 2, 3, 4, 5, 6].map(number => `var(--ov-series-${number})`)
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2", "10 2"]

const written = value => value.toLocaleString("en-US", { maximumSignificantDigits: 4 })

/* The values of each line at the step nearest to `x`, which is given back too. */
export const readOff = (points, x) => {
  const steps = [...new Set(points.map(point => point.x))]
  const nearest = steps.sort((a, b) => Math.abs(a - x) - Math.abs(b - x))[0]
  return { x: nearest, values: points.filter(point => point.x === nearest) }
}

const choice = (text, checked, act, colour = "") => {
  const label = document.createElement("label"), box = document.createElement("input")
  box.type = "checkbox"
  box.checked = checked
  box.addEventListener("change", () => act(box.checked))
  const name = document.createElement("span")
  name.textContent = text
  if (colour) name.style.borderBottom = `0.15rem solid ${colour}`
  label.append(box, name)
  return label
}

const group = (title, ...parts) => {
  const set = document.createElement("fieldset"), legend = document.createElement("legend")
  legend.textContent = title
  set.append(legend, ...parts)
  return set
}

/* Explore tables of one picture: `tables` are [{ machine, table }], the first is the machine that the reader sees. */
export const explore = (place, tables) => {
  const sweeps = tables.map(({ machine, table }) => ({ machine, ...read(table) }))
  const { x: abscissa, y: ordinate } = sweeps[0]
  const names = [...new Set(sweeps.flatMap(({ points }) => points.map(({ series }) => series)))]
  const positive = key => sweeps.every(({ points }) => points.every(point => point[key] > 0))
  const far = key => {
    const values = sweeps[0].points.map(point => point[key])
    return positive(key) && Math.max(...values) / Math.min(...values) >= 30
  }
  const shown = new Set(names), machines = new Set([sweeps[0].machine])
  const scales = { x: far("x") ? "log" : "linear", y: far("y") ? "log" : "linear" }
  const plain = name => name.replace(/, ceiling$/, "")  // a ceiling has the colour of what it limits
  const colours = [...new Set(names.map(plain))]
  const colour = name => COLOURS[colours.indexOf(plain(name)) % COLOURS.length]
  const dash = machine => DASHES[sweeps.findIndex(sweep => sweep.machine === machine) % DASHES.length]

  const box = document.createElement("div"), tools = document.createElement("div")
  const canvas = document.createElement("div"), told = document.createElement("p")
  const slider = document.createElement("input")
  box.className = "ov-explore"
  tools.className = "ov-tools"
  canvas.className = "ov-sweep"
  told.className = "ov-told"
  told.ariaLive = "polite"
  slider.type = "range"
  slider.min = 0
  slider.value = 0
  slider.ariaLabel = `Read off at ${abscissa}`

  const visible = () => sweeps.filter(({ machine }) => machines.has(machine))
    .flatMap(({ machine, points }) => points.filter(({ series }) => shown.has(series)).map(point => ({ ...point, machine })))
  const steps = () => [...new Set(visible().map(({ x }) => x))].sort((a, b) => a - b)

  const draw = () => {
    const points = visible(), at = steps()[Number(slider.value)]
    canvas.replaceChildren()
    if (!points.length) return void (told.textContent = "Nothing is chosen.")
    const ceiling = ({ series }) => series.includes("ceiling")
    const lines = []
    for (const { machine } of visible().filter(({ machine }, i, all) => all.findIndex(each => each.machine === machine) === i)) {
      const own = points.filter(point => point.machine === machine)
      lines.push(line(own, {
        x: "x", y: "y", z: "series", stroke: ({ series }) => colour(series),
        strokeDasharray: dash(machine), strokeOpacity: point => ceiling(point) ? 0.5 : 1,
      }))
    }
    const scale = (type, label) => ({ type, label, grid: true, nice: type === "linear", tickFormat: value => written(value) })
    const drawing = plot({
      width: Math.max(300, canvas.clientWidth), height: 300, marginLeft: 60, marginBottom: 40,
      x: { ...scale(scales.x, abscissa), ticks: 6 }, y: { ...scale(scales.y, ordinate), ticks: 5 },
      marks: [
        ruleX([at], { stroke: "var(--ov-ceiling)", strokeDasharray: "3 3" }), ...lines,
        dot(points.filter(point => !ceiling(point)), { x: "x", y: "y", r: 2.5, fill: ({ series }) => colour(series) }),
      ],
    })
    for (const part of drawing.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label")  // the whole is one image
    drawing.setAttribute("role", "img")
    drawing.setAttribute("aria-label", `${ordinate} over ${abscissa}; the table of its numbers stands above.`)
    drawing.addEventListener("pointermove", event => {
      const { left, width } = drawing.getBoundingClientRect()
      const value = drawing.scale("x").invert((event.clientX - left) / width * drawing.viewBox.baseVal.width)
      const next = steps().indexOf(readOff(visible(), value).x)
      if (next === Number(slider.value)) return
      slider.value = next
      draw()
    })
    canvas.append(drawing)
    const rows = [...machines].map(machine => {
      const own = readOff(points, at).values.filter(point => point.machine === machine)
      return `${machine}: ${own.map(({ series, y }) => `${series} ${written(y)}`.trim()).join(" · ")}`
    })
    told.textContent = [`${abscissa} = ${written(at)}`, ...rows].join("\n")
  }

  const renew = () => {
    slider.max = Math.max(0, steps().length - 1)
    draw()
  }
  slider.addEventListener("input", draw)
  const toggle = (set, name) => on => {
    on ? set.add(name) : set.delete(name)
    renew()
  }
  const log = key => choice(key === "x" ? abscissa : ordinate, scales[key] === "log", on => {
    scales[key] = on ? "log" : "linear"
    draw()
  })
  if (names.length > 1) tools.append(group("Series", ...names.map(name => choice(name, true, toggle(shown, name), colour(name)))))
  if (sweeps.length > 1) {
    tools.append(group("Machines", ...sweeps.map(({ machine }) => choice(machine, machines.has(machine), toggle(machines, machine)))))
  }
  tools.append(group("Logarithmic", ...["x", "y"].filter(positive).map(log)))
  const close = document.createElement("button")
  close.type = "button"
  close.textContent = "Close"
  close.addEventListener("click", () => box.remove())
  tools.append(close)
  box.append(tools, canvas, slider, told)
  place.after(box)
  renew()
  return box
}
