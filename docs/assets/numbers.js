/* The table of numbers under a picture, read as a sweep: series of numbers over numbers. */

const number = text => /^-?[\d,]*\.?\d+(e-?\d+)?$/.test(text.trim()) ? Number(text.replaceAll(",", "")) : NaN

/* { x, y, points: [{ series, x, y }] }, or null where the table holds no sweep: words, fewer than four steps, spans of time.
   A step may stand behind the name of a series ("mm 128, 4"), and a value may hold at "all" steps. */
export const read = table => {
  const heads = [...table?.tHead.rows[0].cells ?? []].map(cell => cell.textContent)
  if (heads.length !== 2 || heads[1] === "lasts") return null
  const points = []
  let series = ""
  for (const row of table.tBodies[0].rows) {
    const texts = [...row.cells].map(cell => cell.textContent)
    if (texts.length === 1) {
      series = texts[0]
      continue
    }
    const [, name, step] = texts[0].match(/^(.*), (\d+)$/) ?? [null, "", texts[0]]
    const whole = name ? `${series.split(":")[0]}, ${name}` : series
    points.push({ series: whole, x: step === "all" ? null : number(step), y: number(texts[1]) })
  }
  if (points.some(({ x, y }) => Number.isNaN(x) || Number.isNaN(y))) return null
  const steps = [...new Set(points.map(({ x }) => x).filter(x => x !== null))]
  const counts = [...new Set(points.map(({ series }) => series))].map(name => points.filter(point => point.series === name).length)
  if (steps.length < 4 || Math.max(...counts) < 4) return null
  const spread = points.flatMap(point => point.x === null ? steps.map(x => ({ ...point, x })) : [point])
  return { x: heads[0], y: heads[1] || "value", points: spread }
}
