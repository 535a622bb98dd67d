/* A timeline to explore: a panel of a picture, which can be zoomed and moved, with all names, and whose gaps can be marked.
   Loaded where a reader asks for it, and with the clinic's game. The gestures are d3-zoom's. The drawing is made where pictures are
   (overlap/site/timeline.py says what the file has); here it gets its bars, is zoomed and moved, and tells what is chosen. */

import { select, zoom, zoomIdentity } from "./vendor/d3-zoom-3.0.0.js"
import "./words.js"

const { translated, shown, roundStep, tickText, isSmall } = window.overlapWords

/* A gap is worth a button from this share of its timeline on. */
const WORTH = 0.01
const LETTER = 5.4
const SVG = "http://www.w3.org/2000/svg"

/* A timeline whose lanes have their `events` in the order of time: { start, end, name, launch, light, waits, part }, in µs;
   what has no name is no event, and drawn only, on an event if it is a part of one. */
export const read = timeline => ({
  ...timeline,
  lanes: timeline.lanes.map(lane => {
    const all = lane.parts.flatMap(({ light, waits, spans }, part) => Object.entries(spans).flatMap(([name, times]) =>
      times.map(([start, length, launch = null]) => ({ start, end: start + length, name, launch, light, waits, part }))))
    all.sort((a, b) => a.start - b.start)
    return { ...lane, events: all.filter(({ name }) => name), empty: all.filter(({ name }) => !name) }
  }),
})

/* The timelines of a file, of a part of the picture or the whole. */
export const fetched = async (url, part = "") => {
  const answer = await fetch(url)
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`)
  return (await answer.json())[part].map(read)
}

const isCpu = lane => lane.cpu

/* What kernels do, by what their recorded names have in them; the first that fits. */
const KERNELS = [
  [/^Memcpy HtoD/, () => translated("copy to the GPU")],
  [/^Memcpy DtoH/, () => translated("copy to the CPU")],
  [/^Memcpy DtoD/, () => translated("copy on the GPU")],
  [/^Memcpy PtoP/, () => translated("copy between GPUs")],
  [/^Memset/, () => translated("fill of memory")],
  [/^ncclDevKernel_([A-Z][A-Za-z]+)/, (_, name) => `NCCL ${name.replace(/(?<=[a-z])(?=[A-Z])/g, "-").toLowerCase()}`],
  [/^triton_[a-z]+_fused_(.+?)_?\d*$/, (_, names) => translated("fused: {0}", names.split("_").filter(Boolean).join(" "))],
  [/[dw]grad/, () => translated("convolution, backward")],
  [/fprop|convolve|conv\dd/i, () => translated("convolution")],
  [/splitk_?reduce/i, () => translated("matmul: sum of its parts")],
  [/gemv/i, () => translated("matrix times vector")],
  [/gemm|nvjet|cutlass/i, () => translated("matmul")],
  [/multi_tensor_apply/, () => translated("elementwise, on many tensors")],
  [/softmax/i, () => "softmax"],
  [/CatArray/, () => "cat"],
  [/average_pool/, () => translated("average pooling")],
  [/reduce_kernel|DeviceReduce/, () => translated("reduction")],
  [/spin_kernel/, () => translated("a kernel that only takes time")],
  [/index_elementwise/, () => translated("indexing")],
  [/elementwise_kernel/, () => translated("elementwise")],
]

/* A recorded name as one reads it: what a kernel does, else its function, without where it stands in the code and its types. */
export const readable = name => {
  for (const [pattern, put] of KERNELS) {
    const match = pattern.exec(name)
    if (match) return put(...match)
  }
  if (!/^void |::/.test(name)) return name
  return name.replace(/^void |\(anonymous namespace\)::|(?:\w+::)+(?=\w)/g, "").replace(/(?<=\w)[<(].*/, "")
}

/* The name as it was recorded, where the readable one differs; recordings cut names at 60 characters. */
const whole = name => readable(name) === name ? "" : name.length === 60 ? `${name}…` : name

/* How much of [from, to] the events cover; events may overlap. */
export const busy = (events, from, to) => {
  let covered = 0, reached = from
  for (const { start, end } of events) {
    const begin = Math.max(start, reached), stop = Math.min(end, to)
    if (stop > begin) covered += stop - begin
    reached = Math.max(reached, stop)
  }
  return covered
}

/* The empty stretch of a lane around a time, or null where an event is; `first` and `last` bound the timeline. */
export const gapAt = (events, time, first, last) => {
  if (events.some(({ start, end }) => start <= time && time <= end)) return null
  const before = events.filter(({ end }) => end < time).map(({ end }) => end)
  const after = events.find(({ start }) => start > time)
  return { from: before.length ? Math.max(...before) : first, to: after ? after.start : last }
}

/* The longest stretch in which no lane of the GPU works: { from, to }. */
export const longestIdle = lanes => {
  const events = lanes.filter(lane => !isCpu(lane)).flatMap(lane => lane.events).sort((a, b) => a.start - b.start)
  let longest = { from: 0, to: 0 }, reached = Infinity
  for (const { start, end } of events) {
    if (start - reached > longest.to - longest.from) longest = { from: reached, to: start }
    reached = reached === Infinity ? end : Math.max(reached, end)
  }
  return longest
}

const unitOf = us => [["s", 1e6], ["ms", 1e3], ["µs", 1]].find(([, length]) => !us || Math.abs(us) >= length) ?? ["ns", 1e-3]

/* As `duration` in overlap/book/statistic.py. */
export const duration = us => {
  const [unit, length] = unitOf(us)
  return `${shown(us / length)} ${unit}`
}

/* A lane without an event between two times, in the unit of the later one. */
const emptied = (name, from, to) => {
  const [unit, length] = unitOf(to)
  return translated("{0} is empty from {1} to {2} {3}, for {4}", name, shown(from / length), shown(to / length), unit, duration(to - from))
}

/* What stands in lanes of the CPU between two times: names with their share, the longest first. */
export const meanwhile = (lanes, from, to) => {
  const rows = new Map()
  for (const lane of lanes.filter(isCpu)) {
    for (const event of lane.events) {
      const inside = Math.min(event.end, to) - Math.max(event.start, from)
      const name = event.name === lane.name ? lane.name : event.name
      if (inside > 0) rows.set(name, (rows.get(name) ?? 0) + inside)
    }
  }
  return [...rows].sort((a, b) => b[1] - a[1])
}

/* What a chosen event launched, or what launched it, in words; nothing where the recording does not tell. */
export const launched = (event, partners) => {
  if (!partners.length) return ""
  const [other] = partners
  if (!isCpu(event.lane)) return translated(" Launched by {0}, {1} before.", readable(other.name), duration(event.start - other.start))
  const later = duration(other.start - event.start)
  if (partners.length > 1) return translated(" Launches {0} kernels; the first, which starts {1} later.", partners.length, later)
  return translated(" Launches {0}, which starts {1} later.", readable(other.name), later)
}

/* A marked stretch in words: its length and, where it is a lane's gap, its `lane`; how busy each lane of the GPU was, what the
   CPU did. Recordings have the CPU's calls into CUDA, so between them it runs what is not recorded. */
export const describe = (lanes, from, to, lane = null) => {
  const working = lanes.filter(lane => !isCpu(lane))
    .map(lane => [lane.name, Math.round(100 * busy(lane.events, from, to) / (to - from))]).filter(([, percent]) => percent)
  const gpu = working.length ? working.map(([name, percent]) => translated("{0} is busy for {1}%", name, percent)).join(translated(", "))
    : translated("the GPU is idle")
  const calls = meanwhile(lanes, from, to).slice(0, 3).map(([name, us]) => `${readable(name)} ${duration(us)}`).join(translated(", "))
  const recorded = lanes.filter(isCpu).flatMap(lane => lane.events).sort((a, b) => a.start - b.start)
  const rest = to - from - busy(recorded, from, to), unnamed = translated("Python, PyTorch or the loader")
  const between = rest > (to - from) / 100 ? translated("; the rest, {0}, is in no recorded call: {1}", duration(rest), unnamed) : ""
  const cpu = calls ? translated("the CPU meanwhile: {0}", calls) + between
    : translated("no call of the CPU is recorded meanwhile: it runs {0}", unnamed)
  return translated("{0}: {1}; {2}.", lane ? emptied(lane.name, from, to) : duration(to - from), gpu, cpu)
}

const put = (made, attributes, parent) => {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  parent.append(made)
  return made
}
const element = (name, attributes, parent) => put(document.createElementNS(SVG, name), attributes, parent)

/* A button that says what it does, in a word and as a title, both in the page's language. */
export const button = (text, title, act) => {
  const made = document.createElement("button")
  made.type = "button"
  made.textContent = translated(text)
  made.title = translated(title)
  if (!/\p{L}/u.test(text)) made.ariaLabel = made.title
  made.addEventListener("click", act)
  return made
}

const KEYS = " Arrow keys go from event to event and from lane to lane, plus and minus zoom, 0 shows all, "
  + "G marks the gap behind the event, L goes from a call to what it launched."

let drawings = 0

/* How far one event of a wheel zooms, as a power of two: by a third. */
const NOTCH = 0.415

/* Show one timeline in `place`, its bars copies of the samples in its drawing; `say` takes the sentence about what is chosen, `marked` each stretch that is marked;
   `below` tells of the bar under a mouse, and then again what it told.
   Of two steps a line stands where the second begins, and their names above the lanes. */
export const draw = (place, { title, us, low, high, lanes, second, forms }, say, { marked = () => {}, target = null, below = null } = {}) => {
  const all = lanes.flatMap(lane => lane.events)
  const first = Math.min(...all.map(event => event.start)), last = Math.max(...all.map(event => event.end))
  const { svg: drawn, left, right, top, bottom, rows: middles, step } = isSmall(place) ? forms.narrow : forms.wide
  const room = right - left, at = time => left + (time - low) / (high - low) * room

  place.innerHTML = drawn.replaceAll("ov-here", `ov-drawing-${++drawings}`)
  const svg = place.firstChild, { width } = svg.viewBox.baseVal
  svg.classList.add("ov-timeline")
  svg.tabIndex = 0
  svg.setAttribute("role", "application")
  svg.setAttribute("aria-label", translated("Timeline {0}, {1} lanes.", title, lanes.length) + translated(KEYS))
  const ticks = svg.querySelector(".ov-ticks"), unzoomed = [...ticks.children], patterns = svg.querySelectorAll("pattern")
  const [line, word] = ["line", "text"].map(name => ticks.querySelector(name))
  const moving = svg.querySelector(".ov-bars"), names = element("g", { class: "ov-names" }, moving.parentNode)
  const rows = lanes.map((lane, number) => {
    const row = moving.children[number], samples = [...row.children], middle = middles[number]
    const bar = ({ start, end, part }) => put(samples[part].cloneNode(), { x: at(start), width: Math.max(at(end) - at(start), 0) }, row)
    row.replaceChildren()
    const drawn = lane.events.map(event => ({ ...event, bar: bar(event), lane }))
    // what has no name lies below the events, but for a part of one, which is drawn on it
    lane.empty.forEach(part => {
      const middle = (part.start + part.end) / 2, on = drawn.find(({ start, end }) => start < middle && middle < end)
      if (on) on.bar.after(bar(part))
      else row.prepend(bar(part))
    })
    return { lane, bars: drawn, middle }
  })
  const links = element("g", { class: "ov-links" }, moving)
  if (target) element("rect", { class: "ov-target", x: at(target.from), width: at(target.to) - at(target.from), y: top, height: bottom - top }, moving)
  if (second) element("line", { class: "ov-second", x1: at(second[0]), x2: at(second[0]), y1: 0, y2: bottom }, moving)
  const stretch = element("rect", { class: "ov-marked", y: top, height: bottom - top, width: 0 }, moving)

  let view = zoomIdentity, chosen = null, marking = false
  const time = x => low + (view.invertX(x) - left) / room * (high - low)

  /* While it is zoomed the axis has other numbers, in the same unit and look. */
  const axis = () => {
    ticks.replaceChildren()
    if (view.k === 1) return ticks.append(...unzoomed)
    const between = us * roundStep(step / view.k / us)
    for (let tick = Math.ceil(time(left) / between - 1e-9); tick * between <= time(right) * (1 + 1e-9); tick++) {
      const x = view.applyX(at(tick * between)), text = put(word.cloneNode(), {}, ticks)
      put(line.cloneNode(), { x1: x, x2: x }, ticks)
      text.textContent = tickText(tick * between / us)
      const half = text.getComputedTextLength() / 2
      text.setAttribute("x", Math.min(Math.max(x, half), width - half))
    }
  }
  const write = () => {
    names.replaceChildren()
    for (const { lane, bars, middle } of rows) {
      for (const { name, start, end, light, waits } of bars.filter(event => event.name !== lane.name)) {
        const from = Math.max(view.applyX(at(start)), left), to = Math.min(view.applyX(at(end)), right)
        const text = readable(name)
        if (text.length * LETTER > to - from - 6) continue  // a name is written whole, or not at all
        element("text", { x: from + 3, y: middle + 3.5, class: `${light ? "ov-light" : ""} ${waits ? "ov-striped" : ""}`.trim() }, names).textContent = text
      }
    }
    axis()
    for (const [number, from, to] of second ? [[1, low, second[0]], [2, second[0], second[0] + second[1]]] : []) {
      const begin = Math.max(view.applyX(at(from)), left), end = Math.min(view.applyX(at(to)), right)
      const text = translated("step {0}", number)
      if (text.length * LETTER < end - begin) put(word.cloneNode(), { x: (begin + end) / 2, y: top - 5 }, ticks).textContent = text
    }
  }

  let waiting = 0
  const extent = [[left, 0], [right, bottom]], center = (left + right) / 2
  const behaviour = zoom().scaleExtent([1, 2000]).translateExtent(extent).extent(extent)
    // A wheel alone scrolls the page, and so does one finger that moves up or down.
    .filter(event => !event.button && !event.shiftKey && !marking && (event.type !== "wheel" || event.ctrlKey || event.metaKey))
    // As d3-zoom, but a notch of a wheel zooms by a third: with Control it takes each for a pinch, and a notch for five.
    .wheelDelta(({ deltaY, deltaMode }) => Math.max(-NOTCH, Math.min(NOTCH, -deltaY * (deltaMode === 1 ? 0.5 : 0.02))))
    .on("zoom", ({ transform }) => {
      view = transform
      moving.setAttribute("transform", `translate(${view.x} 0) scale(${view.k} 1)`)
      for (const pattern of patterns) pattern.setAttribute("patternTransform", `scale(${1 / view.k} 1)`)
      waiting ||= requestAnimationFrame(() => {
        waiting = 0
        write()
      })
    })
  const canvas = select(svg).call(behaviour).on("dblclick.zoom", null)
  // d3-zoom would keep each touch for itself: one finger that goes up or down is the page's, before it hears of it.
  let finger = null, upright = null
  svg.addEventListener("touchstart", ({ touches }) => {
    finger = touches.length === 1 ? touches[0] : null
    upright = null
  }, { capture: true, passive: true })
  svg.addEventListener("touchmove", event => {
    if (!finger) return
    const across = Math.abs(event.touches[0].clientX - finger.clientX), along = Math.abs(event.touches[0].clientY - finger.clientY)
    if (upright === null && across + along > 4) upright = along > across
    if (upright !== false) event.stopImmediatePropagation()
  }, { capture: true, passive: true })
  const scale = (factor, middle = center) => canvas.call(behaviour.scaleBy, factor, [middle, 0])
  const reset = () => canvas.call(behaviour.transform, zoomIdentity)
  const bring = ({ start, end }) => {
    const x = view.applyX((at(start) + at(end)) / 2)
    if (x < left || x > right) canvas.call(behaviour.translateBy, (center - x) / view.k, 0)
  }

  let before = null  // what the line told before the mouse was on a bar
  const tell = text => {
    before = null
    say(text)
  }
  const mark = (from, to, lane = null) => {
    stretch.setAttribute("x", at(from))
    stretch.setAttribute("width", at(to) - at(from))
    tell(describe(lanes, from, to, lane))
    marked(from, to)
  }
  /* Of a call what it launched, of a kernel its call. */
  const partnersOf = event => event.launch === null ? [] : rows.flatMap(({ bars }) =>
    bars.filter(bar => bar.launch === event.launch && isCpu(bar.lane) !== isCpu(event.lane)))
  const link = event => {
    const y = ({ lane }) => rows.find(row => row.lane === lane).middle
    links.replaceChildren()
    for (const other of partnersOf(event)) {
      element("line", { x1: at(event.start), y1: y(event), x2: at(other.start), y2: y(other) }, links)
    }
  }
  const sentence = event => {
    const lane = event.lane.name, name = event.name === lane ? lane : `${lane}: ${readable(event.name)}`
    return translated("{0}, {1}, from {2} on.", name, duration(event.end - event.start), duration(event.start))
  }
  const recorded = event => whole(event.name) && `\n${translated("Recorded name: {0}", whole(event.name))}`
  const choose = event => {
    chosen?.bar.classList.remove("ov-at")
    chosen = event
    event.bar.classList.add("ov-at")
    link(event)
    bring(event)
    tell(sentence(event) + launched(event, partnersOf(event)) + recorded(event))
  }

  const eventOf = new Map(rows.flatMap(({ bars }) => bars.map(event => [event.bar, event])))
  const pointAt = event => {
    if (!below) return
    if (before !== null) Object.assign(below, { textContent: before, style: "" })
    before = null
    if (!event) return
    before = below.textContent
    below.style.minHeight = `${below.offsetHeight}px`  // what is below stays where it is
    below.textContent = sentence(event) + recorded(event)
  }
  let measured = false  // just now: the mouse is on a bar without having moved
  svg.addEventListener("pointerover", ({ target, pointerType, buttons }) => {
    if (pointerType === "mouse" && !buttons && !measured) pointAt(eventOf.get(target))
    measured = false
  })
  svg.addEventListener("pointerleave", () => pointAt())

  const positionOf = event => {
    const box = svg.getBoundingClientRect(), ratio = width / box.width
    return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio]
  }
  const rowAt = y => [...rows].sort((a, b) => Math.abs(a.middle - y) - Math.abs(b.middle - y))[0]
  svg.addEventListener("click", event => {
    if (event.defaultPrevented || event.shiftKey || marking) return  // the end of a drag
    const [x, y] = positionOf(event), moment = time(x), { lane, bars } = rowAt(y)
    const reach = (event.pointerType === "touch" ? 8 : 2) / view.k / room * (high - low)  // a bar of a pixel can be hit
    const far = ({ start, end }) => Math.max(start - moment, moment - end, 0)
    const near = bars.filter(bar => far(bar) <= reach).sort((a, b) => far(a) - far(b))[0]
    if (near) return choose(near)
    const gap = gapAt(bars, moment, first, last)
    if (!gap) return
    /* A lane's gap that is nearly the frame is marked as the frame is: one gap has one length. */
    const shared = target ? Math.min(gap.to, target.to) - Math.max(gap.from, target.from) : 0
    const isFrame = shared > Math.max(gap.to - gap.from, target?.to - target?.from) / 2
    isFrame ? mark(target.from, target.to) : mark(gap.from, gap.to, lane)
  })
  let from = null
  svg.addEventListener("pointerdown", event => {
    if (!event.shiftKey && !marking) return
    event.preventDefault()
    svg.setPointerCapture(event.pointerId)
    from = time(positionOf(event)[0])
  })
  svg.addEventListener("pointermove", event => {
    if (from === null) return
    const to = time(positionOf(event)[0])
    if (to !== from) mark(Math.min(from, to), Math.max(from, to))
  })
  svg.addEventListener("pointerup", () => {
    measured = from !== null
    from = null
  })

  const walk = (by, lanesBy) => {
    if (!chosen) return choose(rows.find(({ bars }) => bars.length).bars[0])
    const here = rows.findIndex(({ lane }) => lane === chosen.lane)
    if (lanesBy) {
      const { bars } = rows[Math.min(rows.length - 1, Math.max(0, here + lanesBy))]
      const nearest = bars.findIndex(({ end }) => end >= chosen.start)
      if (bars.length) choose(bars[nearest < 0 ? bars.length - 1 : nearest])
      return
    }
    const { bars } = rows[here], next = bars.indexOf(chosen) + by
    if (bars[next]) choose(bars[next])
  }
  const keys = {
    ArrowRight: () => walk(1), ArrowLeft: () => walk(-1), ArrowDown: () => walk(0, 1), ArrowUp: () => walk(0, -1),
    "+": () => scale(2), "=": () => scale(2), "-": () => scale(0.5), 0: reset,
    l: () => {
      const [other] = chosen ? partnersOf(chosen) : []
      other ? choose(other) : tell(translated("No link between calls and kernels is recorded here."))
    },
    g: () => {
      if (!chosen) return walk(1)
      const gap = gapAt(chosen.lane.events, chosen.end + 1e-3, first, last)
      gap ? mark(gap.from, gap.to, chosen.lane) : tell(translated("There is no gap behind this event."))
    },
  }
  svg.addEventListener("keydown", event => {
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]
    if (!act || event.altKey || event.ctrlKey || event.metaKey) return
    event.preventDefault()
    act()
  })
  write()
  const markBy = on => {
    marking = on
    svg.classList.toggle("ov-marking", on)
  }
  /* Zoom so far that a stretch can be seen, if it is short. */
  const look = ({ from, to }) => {
    const share = (at(to) - at(from)) / room
    if (share < 0.04) {
      const k = Math.min(0.12 / share, 2000)
      canvas.call(behaviour.transform, zoomIdentity.translate(center - k * (at(from) + at(to)) / 2, 0).scale(k))
    }
  }
  return { scale, reset, mark, markBy, look }
}

/* Buttons that zoom the drawing which `drawing` gives. */
export const zooming = drawing => [
  button("+", "Zoom in", () => drawing().scale(2)), button("−", "Zoom out", () => drawing().scale(0.5)),
  button("Reset", "Show all", () => drawing().reset()),
]

export const isTouched = () => matchMedia("(pointer: coarse)").matches
const hint = () => isTouched()
  ? translated("Tap a bar for its name, a gap for its length. One finger moves, two zoom; with Mark on, one finger measures a stretch.")
  : translated("Click a bar for its name, a gap for its length. Drag moves, Ctrl and wheel zoom, Shift and drag measures a stretch.")

/* The whole explorer: tools, the choice of a timeline, the drawing, and the line that speaks. */
export const explore = async (place, url) => {
  const timelines = await fetched(url)
  /* A picture may say which panel is shown first. Else the one with the most lanes in which something runs is what it is
     about: the others are compared with it. */
  const full = timelines.map(({ lanes }) => lanes.filter(({ events }) => events.length).length)
  const chosen = timelines.findIndex(({ opens }) => opens), begin = chosen < 0 ? full.indexOf(Math.max(...full)) : chosen
  const box = document.createElement("div"), tools = document.createElement("div")
  const canvas = document.createElement("div"), told = document.createElement("p")
  box.className = "ov-explore"
  tools.className = "ov-tools"
  told.className = "ov-told"
  told.ariaLive = "polite"
  const ids = ({ lanes }) => lanes.some(({ events }) => events.some(({ launch }) => launch !== null))
  const say = text => { told.textContent = text }
  let drawing = null, shown = 0
  const marks = button("Mark", "Measure a stretch by dragging", () => {
    const on = marks.ariaPressed !== "true"
    marks.ariaPressed = String(on)
    drawing.markBy(on)
    say(on ? translated("Now drag across the timeline, from the beginning of a stretch to its end.") : hint())
  })
  marks.ariaPressed = "false"
  const longest = button("Longest gap", "Mark the longest stretch in which the GPU is idle", () => {
    const { from, to } = longestIdle(timelines[shown].lanes)
    drawing.reset()
    drawing.mark(from, to)
  })
  longest.className = "ov-first"
  const which = document.createElement("span")  // a picture has several panels, and here is one of them
  const show = number => {
    shown = number
    which.textContent = translated(" {0} of {1}", number + 1, timelines.length)
    drawing = draw(canvas, timelines[number], say, { below: told })
    drawing.markBy(marks.ariaPressed === "true")
    const { low, high, lanes } = timelines[number], gap = longestIdle(lanes)
    longest.hidden = gap.to - gap.from < WORTH * (high - low)
    say(ids(timelines[number]) ? hint() : hint() + translated(" This recording does not show which call launched which kernel."))
  }
  tools.append(longest)
  if (timelines.length > 1) {
    const choice = document.createElement("select"), label = document.createElement("label")
    choice.ariaLabel = translated("Timeline")  // the text of a label has the options, too
    label.append(`${choice.ariaLabel} `, choice)
    for (const [number, { title }] of timelines.entries()) choice.add(new Option(title, number))
    choice.value = begin
    choice.addEventListener("change", () => show(Number(choice.value)))
    which.className = "ov-which"
    label.append(which)
    tools.append(label)
  }
  tools.append(
    ...zooming(() => drawing), marks,
    button("Close", "Close the timeline", () => {
      box.remove()
      box.dispatchEvent(new Event("closed"))
      place.querySelector("button")?.focus({ preventScroll: true })
    }),
  )
  box.append(tools, canvas, told)
  place.after(box)
  show(begin)
  return box
}
