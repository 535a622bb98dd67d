/* What scripts write, in the language of the page: an English text is its own key, and {0} a place for a value. A page in another
   language has its words here. The other scripts ask overlapWords; what only English pages have is not in the table. What is
   made by the build, as pictures and where a value is from, arrives in the page's language. It is the first of the book's own scripts: at each change of page it
   sets the language before the others speak. How numbers read, and which picture has its narrow form, they ask here, too. */

window.overlapWords ??= (() => {
  const TEXTS = {
    zh: {
      // machines.js: the picker, and what it changes
      "Machine": "机器",
      "{0} (this build)": "{0}（本次构建）",
      "Other machines cannot be shown: their files cannot be read here ({0}).": "无法显示其他机器：这里读不到它们的文件（{0}）。",
      "shown on": "显示",
      "compare with": "对比",
      "Both machines gave the same: the two pictures do not differ.": "两台机器的结果相同：两张图没有差别。",
      "The two pictures have different axes: compare the numbers, not the lengths.": "两张图的坐标轴不同：请比较数值，不要比较长度。",
      "The numbers in the caption are those of {0}.": "图注中的数值来自 {0}。",
      "none": "无",
      "{0} more in the raw recording.": "另有 {0} 项，见原始记录。",
      "on how many machines this holds": "在几台机器上成立",
      "yours": "你的机器",
      "; on your machine: {0}": "；在你的机器上：{0}",

      // overlap.js: calculators, guesses, buttons
      "This is not a number.": "这不是数字。",
      "No verdict: {0}": "无法判断：{0}",
      "This field is empty.": "这里还没有填。",
      "{0} is too small.": "{0} 太小。",
      "{0} is too large.": "{0} 太大。",
      "{0} is not a whole number.": "{0} 不是整数。",
      "Enter a number from {0} to {1}.": "请输入 {0} 到 {1} 之间的数。",
      "Enter a whole number from {0} to {1}.": "请输入 {0} 到 {1} 之间的整数。",
      "Dashed line: {0}, {1}.": "虚线：{0}，{1}。",
      "The curve reaches it at {0}.": "曲线在 {0} 处到达虚线。",
      "The curve leaves it at {0}.": "曲线在 {0} 处离开虚线。",
      "The curve does not reach it.": "曲线到不了虚线。",
      "The whole curve is above it.": "整条曲线都在虚线之上。",
      "The curve lies on it.": "曲线与虚线重合。",
      " Arrow keys tell its {0} values.": "用方向键可以逐个读出其中的 {0} 个值。",
      "{0} of {1} guessed right.": "猜了 {1} 题，猜对 {0} 题。",
      "{0} of {1} guessed right; {2} more in this chapter.": "猜了 {1} 题，猜对 {0} 题；这一章还有 {2} 题。",
      "Copy to clipboard": "复制到剪贴板",
      "Copied to clipboard": "已复制",
      "open in Perfetto": "在 Perfetto 中打开",
      "Explore this timeline": "放大查看时间线",
      "Open all": "全部展开",
      "Close all": "全部收起",
      "Code {0}": "代码 {0}",
      "Search": "搜索",
      "Clear": "清空",
      "Initializing search": "正在加载搜索",
      "Type to start searching": "输入文字，开始搜索",
      "No matching documents": "没有找到相符的内容",
      "1 matching document": "找到 1 条结果",
      "{0} matching documents": "找到 {0} 条结果",
      "1 more on this page": "这一页还有 1 条结果",
      "{0} more on this page": "这一页还有 {0} 条结果",
      "Permanent link": "本节的链接",
      "Chapters": "章节",

      // timeline.js: the explorer
      "Timeline": "时间线",
      " {0} of {1}": " 第 {0} 个，共 {1} 个",
      "Timeline {0}, {1} lanes.": "时间线“{0}”，共 {1} 行。",
      " Arrow keys go from event to event and from lane to lane, plus and minus zoom, 0 shows all, G marks the gap behind the event, L goes from a call to what it launched.":
        "用方向键在事件之间、行之间移动，加号和减号缩放，0 显示全部，G 标出事件后面的空隙，L 从一次调用跳到它启动的工作。",
      "Click a bar for its name, a gap for its length. Drag moves, Ctrl and wheel zoom, Shift and drag measures a stretch.":
        "点击色条看名称，点击空隙看时长。拖动可平移，Ctrl 加滚轮可缩放，按住 Shift 拖动可量一段时间。",
      "Tap a bar for its name, a gap for its length. One finger moves, two zoom; with Mark on, one finger measures a stretch.":
        "点一下色条看名称，点一下空隙看时长。单指平移，双指缩放；打开“测量”后，单指可量一段时间。",
      " This recording does not show which call launched which kernel.": "哪次调用启动了哪个核函数，这份记录没有说明。",
      "Zoom in": "放大",
      "Zoom out": "缩小",
      "Reset": "复位",
      "Show all": "显示全部",
      "Mark": "测量",
      "Measure a stretch by dragging": "拖动以测量一段时间",
      "Now drag across the timeline, from the beginning of a stretch to its end.": "现在从一段时间的开头拖动到结尾。",
      "Longest gap": "最长的空隙",
      "Mark the longest stretch in which the GPU is idle": "标出 GPU 空闲最久的一段",
      "Close": "关闭",
      "Close the timeline": "关闭时间线",
      " Launched by {0}, {1} before.": "由 {0} 在 {1} 之前启动。",
      " Launches {0}, which starts {1} later.": "它启动了 {0}，后者在 {1} 之后开始。",
      " Launches {0} kernels; the first, which starts {1} later.": "它启动了 {0} 个核函数，第一个在 {1} 之后开始。",
      "Recorded name: {0}": "记录中的名称：{0}",
      "copy to the GPU": "拷贝到 GPU",
      "copy to the CPU": "拷贝到 CPU",
      "copy on the GPU": "GPU 内拷贝",
      "copy between GPUs": "GPU 之间拷贝",
      "fill of memory": "填充内存",
      "fused: {0}": "融合：{0}",
      "convolution, backward": "卷积，反向",
      "convolution": "卷积",
      "matmul: sum of its parts": "矩阵乘法：各部分求和",
      "matrix times vector": "矩阵乘向量",
      "matmul": "矩阵乘法",
      "elementwise, on many tensors": "逐元素，多个张量",
      "average pooling": "平均池化",
      "reduction": "归约",
      "a kernel that only takes time": "只占用时间的核函数",
      "indexing": "索引",
      "elementwise": "逐元素",
      "{0} is busy for {1}%": "{0} 有 {1}% 的时间在工作",
      "the GPU is idle": "GPU 空闲",
      "Python, PyTorch or the loader": "Python、PyTorch 或数据加载器",
      "the CPU meanwhile: {0}": "同时 CPU 在执行：{0}",
      "; the rest, {0}, is in no recorded call: {1}": "；其余 {0} 不在任何有记录的调用中：{1}",
      "no call of the CPU is recorded meanwhile: it runs {0}": "这段时间没有记录到 CPU 的调用：它在运行 {0}",
      "{0} is empty from {1} to {2} {3}, for {4}": "{0} 从 {1} 到 {2} {3} 是空的，共 {4}",
      "{0}: {1}; {2}.": "{0}：{1}；{2}。",
      "{0}, {1}, from {2} on.": "{0}，持续 {1}，从 {2} 开始。",
      ", ": "，",
      "There is no gap behind this event.": "这个事件后面没有空隙。",
      "No link between calls and kernels is recorded here.": "这里没有记录调用与内核的对应关系。",

      // fault.js: the clinic's game
      "Start again": "重新开始",
      "Put all faults back": "恢复所有故障",
      "All faults: {0} ms a step": "全部故障：每步 {0} ms",
      "{0} of {1} faults repaired: {2} ms a step": "已排除 {0}/{1}：每步 {2} ms",
      "; {0} in this trace, because a profiler makes launches slower": "；这份记录里是 {0} ms，因为分析器会让启动变慢",
      "step {0}": "第 {0} 步",
      " The trace begins with the first call of CUDA, after the reading of step 1.": "记录从第一次调用 CUDA 开始，在第 1 步读完数据之后。",
      " Here the GPU is idle for longest.": "GPU 空闲最久的就是这里。",
      " The GPU is idle for longest elsewhere: {0}.": "GPU 空闲最久的在别处：{0}。",
      "Two steps, as a profiler saw them. The dashed frame is the GPU's longest gap. What does Python do there? Where its lane is only outlined, Python makes no CUDA call; where it is striped, it waits for the GPU.":
        "这是分析器看到的两步。虚线框是 GPU 最长的空隙。那时 Python 在做什么？它那一行只有外框的地方没有调用 CUDA；有斜线的地方在等待 GPU。",
      "Now no single long gap is left. The dashed frame is what the next repair takes away. What is it?":
        "现在没有单独一个很长的空隙了。虚线框里是下一次修复会去掉的部分。它是什么？",
      " In the frame Python waits for the GPU. After the frame, {0} of the step are left. A step is: forward pass, loss, backward pass, optimizer. When does each line below need its number?":
        "虚线框里 Python 在等待 GPU；此后到这一步结束，Python 还要 {0}。一步依次是：前向传播、损失、反向传播、优化器。下面每一行代码，是什么时候需要它的数的？",
      " This is in the frame.": "这就在虚线框里。",
      " The frame is elsewhere.": "虚线框在别处。",
      " Click the gap, then choose the cause.": "点击空隙，再选择原因。",
      " Tap the gap, then choose the cause.": "点一下空隙，再选择原因。",
      "Two steps of the healthy program. You took out {0} faults, with {1} wrong choices.": "这是没有故障的程序的两步。你排除了 {0} 个故障，选错 {1} 次。",
      "Two steps of the healthy program. You took out {0} faults, with 1 wrong choice.": "这是没有故障的程序的两步。你排除了 {0} 个故障，选错 1 次。",
      " Without a profiler a step takes {0} ms: what this trace has more is the profiler's.": "没有分析器时，一步只用 {0} ms：这份记录多出来的时间来自分析器。",
      "That fault is there, too: {0}. But the dashed frame shows another one. Where this one is, you see: {1}.":
        "这个故障也存在：{0}。但虚线框里的是另一个。这个故障在记录中是：{1}。",
      " It does not begin where Python waits for the GPU (striped). So look for a fault that adds work.":
        "虚线框不是从 Python 等待 GPU（斜线）的地方开始的。所以要找的是增加工作的故障。",
      "One fault is left. It makes Python wait in the dashed frame, at the end of the step: after the frame, {0} are left.":
        "还剩一个故障。它让 Python 在虚线框里等待，位置在这一步的末尾：此后只剩 {0}。",
      " The step got shorter, but this trace is longer than the one before, because the profiler makes launches slower.":
        "这一步变短了，这份记录却比前一份长，因为分析器会让启动变慢。",
      " (The timeline is enlarged: Reset shows both steps.)": "（时间线已放大：点“复位”可看到完整的两步。）",
      " (the limit: {0})": "（瓶颈：{0}）",
      "Yes: {0}. What was written: {1}. What the trace showed: {2}. Repaired, a step takes {3} ms instead of {4}. ":
        "对：{0}。原来的写法：{1}。从记录中可以看到：{2}。排除之后，每步的时间从 {4} ms 变为 {3} ms。",
      "More in ": "详见",
      ".": "。",
    },
  }

  const translated = (english, ...values) => {
    const { lang } = document.documentElement, table = Object.hasOwn(TEXTS, lang) ? TEXTS[lang] : {}
    return (Object.hasOwn(table, english) ? table[english] : english).replace(/\{(\d)\}/g, (_, place) => values[place])
  }

  /* Without a reload the theme keeps the language and the header of the page before; the links in the head are the new page's. */
  const followLanguage = () => {
    const links = [...document.head.querySelectorAll("link[hreflang]")]
    for (const { hreflang, href } of links) document.querySelector(`.md-select__link[hreflang=${hreflang}]`).href = href
    const isChinese = links.some(({ hreflang, href }) => hreflang === "zh" && new URL(href).pathname === location.pathname)
    if (links.length) document.documentElement.lang = isChinese ? "zh" : "en"
  }
  if (location.protocol !== "file:") window.document$?.subscribe(followLanguage)

  /* A number as `show` in overlap/book/statistic.py writes it: three digits, from a thousand on all of them. A half goes to the even
     neighbour, where Math.round and toPrecision would go up. */
  const round = number => Math.abs(number % 1) === 0.5 ? 2 * Math.round(number / 2) : Math.round(number)
  const shown = number => {
    if (Math.abs(number) >= 999.5) return round(number).toLocaleString("en-US")
    const half = /^(-?\d\.\d[02468])50*(e.*)$/.exec(number.toExponential(60))
    return String(half ? Number(half[1] + half[2]) : Number(number.toPrecision(3)))
  }

  /* Whether a picture or timeline has its narrow form: on a phone, and where it has the room of one, beside another. */
  const isNarrow = () => matchMedia(`(max-width: ${window.overlapNarrow})`).matches  // from generated/machines.js
  const isSmall = ({ clientWidth }) => isNarrow() || (clientWidth > 0 && clientWidth < window.overlapSmall)

  /* The places of an axis's numbers, as `round_step`, `round_ticks` and `log_ticks` in overlap/site/scales.py find them. */
  const roundStep = least => {
    const power = 10 ** Math.floor(Math.log10(least))
    return power * [1, 2, 5, 10].find(factor => least <= factor * power * (1 + 1e-9))
  }
  const roundTicks = (low, high, most) => {
    const step = roundStep((high - low) / most), first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9)
    return Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toFixed(12)))
  }
  const logTicks = (low, high, most) => {
    let within = []
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      within.push(...[1, 2, 5].map(factor => Number(`${factor}e${power}`)).filter(place => place >= low * 0.999 && place <= high * 1.001))
    }
    if (high >= 200 * low || within.length > most) within = within.filter(place => /^1e/.test(place.toExponential()))
    if (within.length < 2 && high < 30 * low) return roundTicks(low, high, 4)
    const every = Math.ceil(within.length / most)
    return within.filter((_, place) => place % every === 0)
  }

  /* What stands at such a place, as `number` there. */
  const tickText = number => {
    if (number && Math.abs(number) < 1e-4) {
      const [times, power] = number.toExponential(2).split("e"), raised = power.replace("-", "⁻").replace(/\d/g, digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])
      return `${Number(times)}×10${raised}`.replace(/^1×/, "").replace("-", "−")
    }
    const [part, unit, digits] = Math.abs(number) >= 1e6 ? [number / 1e6, " M", 3] : [number, "", 10]
    return part.toLocaleString("en-US", { maximumSignificantDigits: digits, signDisplay: "negative" }).replace("-", "−") + unit
  }

  return { translated, round, shown, roundStep, roundTicks, logTicks, tickText, isSmall }
})()
