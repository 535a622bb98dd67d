/* The machine picker: one select in the header that tabs, values and verdicts on every page follow.
   Without this script each page shows one machine, and its tabs can still be switched. */

(() => {
  const KEY = "overlap.machine"
  const machines = JSON.parse(document.getElementById("overlap-machines")?.textContent ?? "[]")
  const label = Object.fromEntries(machines.map(m => [m.profile, m.label]))
  const parts = profile => {
    const [, model, count] = profile.match(/^(.+?)(?:-x(\d+))?$/)
    return { model, count: profile === "cpu" ? 0 : Number(count ?? 1) }
  }

  /* The machine among `profiles` that is nearest to the wanted one: same model, then the closest GPU count. */
  const nearest = (wanted, profiles) => {
    const { model, count } = parts(wanted)
    const distance = profile => {
      const other = parts(profile)
      return (profile === wanted ? 0 : 1) + (other.model === model ? 0 : 100) + Math.abs(other.count - count)
        + (other.count === 0 ? 1000 : 0)
    }
    return [...profiles].sort((a, b) => distance(a) - distance(b))[0]
  }

  const note = (set, wanted, shown) => {
    let line = set.querySelector(":scope > .ov-nearest-note")
    if (wanted === shown) return line?.remove()
    if (!line) {
      line = document.createElement("p")
      line.className = "ov-nearest-note"
      set.prepend(line)
    }
    line.textContent = `Not run on ${label[wanted]}; shown is ${label[shown] ?? shown}.`
  }

  const apply = wanted => {
    document.documentElement.dataset.machine = wanted
    for (const value of document.querySelectorAll(".ov-value")) {
      const spans = [...value.children]
      const shown = nearest(wanted, spans.map(span => span.dataset.machine))
      for (const span of spans) {
        span.classList.toggle("ov-on", span.dataset.machine === shown)
        span.classList.toggle("ov-nearest", span.dataset.machine === shown && shown !== wanted)
      }
    }
    for (const set of document.querySelectorAll(".tabbed-set")) {
      const runs = [...set.querySelectorAll(".ov-run")].map(run => run.dataset.machine)
      if (!runs.length) continue
      const shown = nearest(wanted, runs)
      const input = [...set.querySelectorAll(":scope > input")][runs.indexOf(shown)]
      if (input && !input.checked) input.click()
      note(set, wanted, shown)
    }
    for (const row of document.querySelectorAll(".ov-claim li")) {
      row.classList.toggle("ov-picked", row.dataset.machine === wanted)
    }
  }

  const picked = () => {
    const asked = new URLSearchParams(location.search).get("machine")
    if (asked && label[asked]) return asked
    const stored = localStorage.getItem(KEY)
    return stored && label[stored] ? stored : machines.find(m => m.first)?.profile
  }

  const build = () => {
    const header = document.querySelector(".md-header__inner")
    if (!header || !machines.length || header.querySelector(".ov-picker")) return
    const picker = document.createElement("label")
    picker.className = "ov-picker"
    picker.innerHTML = '<span class="ov-picker-name">Machine</span><select></select>'
    const select = picker.querySelector("select")
    for (const machine of machines) {
      select.add(new Option(machine.label + (machine.live ? " (this build)" : ""), machine.profile))
    }
    select.value = picked()
    select.addEventListener("change", () => {
      localStorage.setItem(KEY, select.value)
      const url = new URL(location.href)
      if (url.searchParams.has("machine")) {
        url.searchParams.set("machine", select.value)
        history.replaceState(history.state, "", url)
      }
      apply(select.value)
    })
    header.insertBefore(picker, header.querySelector(".md-header__option, .md-search, [for=__search]"))
  }

  const start = () => {
    build()
    const wanted = picked()
    if (!wanted) return
    const select = document.querySelector(".ov-picker select")
    if (select) select.value = wanted
    if (new URLSearchParams(location.search).has("machine")) localStorage.setItem(KEY, wanted)
    apply(wanted)
  }

  window.document$ ? window.document$.subscribe(start) : start()
})()
