/* Find the fault: a step's timeline, the faults to choose from, and what taking one out changed.
   Everything it shows stands on the page: the table of faults, the table of steps, the timelines of the picked machine. */

import { button, draw, duration, fetched, isTouched, longestIdle, zooming } from "./timeline.js"

const { translated, shown } = window.overlapWords  // timeline.js has fetched words.js

/* Not innerText, which is empty in a row of evidence that is closed. */
const cells = row => [...row.cells].map(cell => cell.textContent.replace(/\s+/g, " ").trim())

/* A fault in words, as its cell says it behind its name, which is code. */
const named = cell => {
  const name = cell.querySelector("code")?.textContent ?? cell.textContent.trim()
  return { fault: name, words: cell.textContent.replace(name, "").replace(/\s+/g, " ").trim() || name }
}

/* What the page says: { options: [{ fault, words, written }], stages: [{ fault, ms, hint }] }; a stage's hint leads to it.
   The options stand in the order of their words: that of the table is the one in which they are taken out. */
export const game = (faults, steps) => ({
  options: [...faults.tBodies[0].rows].map(row =>
    ({ ...named(row.cells[0]), written: cells(row)[1], more: [...row.querySelectorAll("a[href]")].at(-1) }))
    .sort((a, b) => a.words.localeCompare(b.words, "en")),
  stages: [...steps.tBodies[0].rows].map(row => {
    const hint = cells(row).at(-1), limit = [...row.cells].at(-1).querySelector("strong")?.textContent
    const told = limit ? hint.replace(`: ${limit}`, translated(" (the limit: {0})", limit)) : hint
    return { fault: named(row.cells[0]).fault, ms: cells(row)[1], hint: told }
  }),
})

const GAP = "Two steps, as a profiler saw them. The dashed frame is the GPU's longest gap. What does Python do there? "
  + "Where its lane is only outlined, Python makes no CUDA call; where it is striped, it waits for the GPU."
const CUT = " The trace begins with the first call of CUDA, after the reading of step 1."
const NO_GAP = "Now no single long gap is left. The dashed frame is what the next repair takes away. What is it?"

const WORK = " It does not begin where Python waits for the GPU (striped). So look for a fault that adds work."
const WAIT = " In the frame Python waits for the GPU. After the frame, {0} of the step are left. "
  + "A step is: forward pass, loss, backward pass, optimizer. When does each line below need its number?"
const LAST = "One fault is left. It makes Python wait in the dashed frame, at the end of the step: after the frame, {0} are left."
const REAL = " Without a profiler a step takes {0} ms: what this trace has more is the profiler's."
const LONGER = " The step got shorter, but this trace is longer than the one before, because the profiler makes launches slower."
const NEAR = " (The timeline is enlarged: Reset shows both steps.)"

/* How long Python works behind a frame that is one of its waits; null for other frames. Frames lie in the last step. */
const behindWait = ({ frame, lanes }) => {
  const calls = lanes.filter(({ cpu }) => cpu).flatMap(({ events }) => events)
  const wait = frame && calls.find(({ start, waits }) => waits && Math.abs(start - frame[0]) < 1)
  return wait ? Math.max(...calls.map(({ end }) => end)) - wait.end : null
}

/* What a timeline frames: what the next repair takes away, and at least so much that it can be seen; or its longest gap. */
const framed = ({ frame, lanes, low, high }) => {
  if (!frame) return longestIdle(lanes.filter(({ name }) => name !== "copies"))
  const [from, length] = frame
  return { from, to: from + Math.max(length, (high - low) / 500) }
}

const paragraph = (name, text = "") => {
  const made = document.createElement("p")
  made.className = name
  made.textContent = text
  return made
}

/* Play in `place`: the timelines of `url` in the order of the stages. */
export const play = async (place, faults, steps, url) => {
  const { options, stages } = game(faults, steps)
  const timelines = new Map((await fetched(url, "faults")).map(timeline => [timeline.title, timeline]))
  const title = paragraph("ov-fault-title"), canvas = document.createElement("div"), told = paragraph("ov-told")
  const choices = document.createElement("div"), verdict = paragraph("ov-verdict")
  choices.className = "ov-tools"
  told.ariaLive = verdict.ariaLive = "polite"
  const tools = document.createElement("div"), cured = new Set()
  let wrong = 0
  let drawing = null
  const again = button("Start again", "Put all faults back", () => {
    cured.clear()
    wrong = 0
    verdict.textContent = ""
    show(0)
    choices.querySelector("button")?.focus()
  })
  tools.className = "ov-tools"
  tools.append(...zooming(() => drawing), again)
  place.replaceChildren(verdict, title, tools, canvas, told, choices)  // what is right or wrong is said at one place

  const show = number => {
    const { fault, ms } = stages[number]
    again.hidden = !number
    const timeline = timelines.get(number ? fault : "all"), { lanes, us, high, second } = timeline
    title.textContent = (number ? translated("{0} of {1} faults repaired: {2} ms a step", number, options.length, ms)
      : translated("All faults: {0} ms a step", ms))
      + (second ? translated("; {0} in this trace, because a profiler makes launches slower", shown(second[1] / us)) : "")
    const idle = longestIdle(lanes.filter(({ name }) => name !== "copies"))
    const frame = framed(timeline), isOver = number === options.length
    const behind = isOver ? null : behindWait(timeline)
    const isGap = Math.min(idle.to, frame.to) - Math.max(idle.from, frame.from) > (frame.to - frame.from) / 2
    const near = high / (frame.to - frame.from) > 25  // as `look` decides
    drawing = draw(canvas, { ...timeline, title: title.textContent }, text => { told.textContent = text }, { target: isOver ? null : frame, below: told, marked: (from, to) => {
      if (isOver) return
      const isThere = Math.min(to, frame.to) - Math.max(from, frame.from) > (frame.to - frame.from) / 2
      if (isGap) told.textContent += isThere ? translated(" Here the GPU is idle for longest.") : translated(" The GPU is idle for longest elsewhere: {0}.", duration(idle.to - idle.from))
      else told.textContent += isThere ? translated(" This is in the frame.") : translated(" The frame is elsewhere.")
    } })
    if (!isOver) drawing.look(frame)
    if (!isOver && isGap) told.textContent = translated(GAP) + (second && !number ? translated(CUT) : "") + translated(isTouched() ? " Tap the gap, then choose the cause." : " Click the gap, then choose the cause.")
    else if (!isOver && behind !== null && number === options.length - 1) told.textContent = translated(LAST, duration(behind)) + (near ? translated(NEAR) : "")
    else if (!isOver) told.textContent = translated(NO_GAP) + (behind === null ? translated(WORK) : translated(WAIT, duration(behind))) + (near ? translated(NEAR) : "")
    else if (wrong === 1) told.textContent = translated("Two steps of the healthy program. You took out {0} faults, with 1 wrong choice.", options.length)
    else told.textContent = translated("Two steps of the healthy program. You took out {0} faults, with {1} wrong choices.", options.length, wrong)
    const before = number && timelines.get(number > 1 ? stages[number - 1].fault : "all")
    if (!isOver && second && before?.second && second[1] / us > before.second[1] / before.us && Number(ms) < Number(stages[number - 1].ms)) told.textContent += translated(LONGER)
    if (isOver && second && second[1] / us > 1.2 * ms) told.textContent += translated(REAL, ms)
    choices.replaceChildren()
    if (number === options.length) return
    for (const option of options.filter(option => !cured.has(option.fault))) {
      const choice = document.createElement("button")
      choice.type = "button"
      choice.textContent = option.words
      choice.title = option.written
      if (behind !== null) choice.append(document.createElement("br"), Object.assign(document.createElement("small"), { textContent: option.written }))
      choice.addEventListener("click", () => choose(number, option))
      choices.append(choice)
    }
  }

  const choose = (number, { fault, words, written, more }) => {
    const next = stages[number + 1]
    if (fault !== next.fault) {
      wrong += 1
      const { hint } = stages.find(stage => stage.fault === fault)
      verdict.textContent = translated("That fault is there, too: {0}. But the dashed frame shows another one. Where this one is, you see: {1}.", words, hint)
      place.scrollIntoView({ block: "nearest" })
      return
    }
    cured.add(fault)
    verdict.textContent = translated("Yes: {0}. What was written: {1}. What the trace showed: {2}. Repaired, a step takes {3} ms instead of {4}. ",
      words, written, next.hint, next.ms, stages[number].ms)
    if (more) verdict.append(translated("More in "), more.cloneNode(true), translated("."))
    show(number + 1)
    choices.querySelector("button")?.focus({ preventScroll: true })
    place.scrollIntoView({ block: "nearest" })  // no further than it must
  }
  show(0)
}
