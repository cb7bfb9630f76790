"use strict";
// Panels of a chart share their time axis. A panel is drawn anew, from the points that are to be seen, whenever the
// view changes; its height axis fits what is seen.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const LEFT = 92, RIGHT = 16, TOP = 22, BOTTOM = 22;
  const HEIGHTS = { lines: 380, bars: 120 }, DOT = 5;
  // Okabe and Ito: colour-blind people can tell them apart. The two of the thick lines are used for nothing else.
  const COALESCED = "#0072B2", SPARK = "#D55E00";
  const COLOURS = ["#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#B8A900", "#8A6FDF", "#7F7F7F", "#A0522D"];
  const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5,
    72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 12096e5, 2592e6, 7776e6, 31536e6];

  const figures = JSON.parse(document.getElementById("figures").textContent);
  document.title = `Watermarks of ${figures.title}`;
  document.querySelector("h1").textContent = figures.title;
  document.getElementById("about").textContent = figures.about;
  const facts = document.createElement("div");
  facts.className = "facts";
  facts.hidden = true;
  document.body.append(facts);

  const made = (parent, name, attributes = {}, text = null) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    parent.append(node);
    return node;
  };
  const iso = (ms) => (Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString().replace("T", " ") : `${ms} ms`);
  const second = (ms) => iso(ms).slice(0, 19);
  const span = (ms) => {
    for (const [unit, name] of [[864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"]])
      if (Math.abs(ms) >= 2 * unit) return `${(ms / unit).toFixed(1).replace(/\.0$/, "")} ${name}`;
    return `${Math.round(ms)} ms`;
  };
  // The first index whose time is at or after `ms`.
  const from = (at, ms) => {
    let low = 0, high = at.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at[middle] < ms) low = middle + 1; else high = middle;
    }
    return low;
  };
  const timeSteps = (low, high, most) => {
    const step = STEPS_MS.find((one) => (high - low) / one <= most) ?? (high - low) / most;
    const marks = [];
    for (let one = Math.ceil(low / step) * step; one <= high; one += step) marks.push(one);
    return [marks, step];
  };
  const timeText = (ms, step) => {
    const text = iso(ms);
    if (step >= 864e5) return text.slice(0, 10);
    return step >= 6e4 ? text.slice(5, 16) : step >= 1e3 ? text.slice(11, 19) : text.slice(11, 23);
  };
  const numberSteps = (high, most) => {
    const rough = Math.max(high / most, 1e-9), power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max([1, 2, 5, 10].find((one) => one * power >= rough) * power, 1);
    return Array.from({ length: Math.floor(high / step) + 1 }, (_, n) => n * step);
  };

  class Chart {
    constructor(chart, parent) {
      this.chart = chart;
      const at = chart.at, alone = at.length < 2 || at[0] === at[at.length - 1];
      this.all = alone ? [at[0] - 1000, at[0] + 1000] : [at[0], at[at.length - 1]];
      this.seen = [...this.all];
      this.hidden = new Set();
      this.root = document.createElement("section");
      this.root.tabIndex = 0;
      const head = document.createElement("h2");
      head.textContent = chart.name + (chart.leftOut ? ` (${chart.leftOut} more partitions: only their band)` : "");
      this.root.append(head);
      this.lines = [
        ...chart.tracks.map((track, n) => ({ name: track.name, values: track.values, colour: COLOURS[n % COLOURS.length],
          width: 1.3, dash: n % 16 < 8 ? "" : "5 2" })),
        ...(chart.hasSpark ? [{ name: "Spark: one watermark for all", values: chart.highest, colour: SPARK, width: 2.5,
          dash: "7 4" }] : []),
        { name: "keyedwm: the coalesced watermark", values: chart.coalesced, colour: COALESCED, width: 3, dash: "" },
      ];
      this.names();
      const idle = chart.tracks.filter((track) => track.idle.length);
      this.panels = [{ kind: "watermarks", height: HEIGHTS.lines, title: "Watermarks (event time, UTC)" }];
      if (idle.length)
        this.panels.push({ kind: "idle", height: TOP + BOTTOM + 14 * idle.length, title: "Idle partitions", idle });
      for (const bars of chart.bars) this.panels.push({ kind: "bars", height: HEIGHTS.bars, title: bars.title, bars });
      for (const panel of this.panels) {
        panel.svg = made(this.root, "svg", { height: panel.height, role: "img", "aria-label": panel.title });
        this.listen(panel);
      }
      this.root.addEventListener("keydown", (event) => this.key(event));
      parent.append(this.root);
    }

    names() {
      const box = document.createElement("div");
      box.className = "names";
      for (const line of [...this.lines].reverse()) {
        const button = document.createElement("button"), mark = document.createElement("i");
        mark.style.borderColor = line.colour;
        if (line.dash) mark.style.borderTopStyle = "dashed";
        button.append(mark, line.name);
        button.addEventListener("click", () => {
          if (!this.hidden.delete(line.name)) this.hidden.add(line.name);
          button.classList.toggle("off", this.hidden.has(line.name));
          this.draw();
        });
        box.append(button);
      }
      this.root.append(box);
    }

    x(ms) { return LEFT + ((ms - this.seen[0]) / (this.seen[1] - this.seen[0])) * (this.width - LEFT - RIGHT); }
    ms(x) { return this.seen[0] + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (this.seen[1] - this.seen[0]); }

    see(low, high) {
      const least = 10, whole = this.all[1] - this.all[0];
      const wide = Math.min(Math.max(high - low, least), whole);
      const begin = Math.min(Math.max(low, this.all[0]), this.all[1] - wide);
      this.seen = [begin, begin + wide];
      this.draw();
    }
    zoom(around, factor) {
      const [low, high] = this.seen;
      this.see(around - (around - low) * factor, around + (high - around) * factor);
    }
    move(by) { this.see(this.seen[0] + by, this.seen[1] + by); }

    key(event) {
      const wide = this.seen[1] - this.seen[0], middle = this.seen[0] + wide / 2;
      const does = { "+": () => this.zoom(middle, 0.5), "=": () => this.zoom(middle, 0.5), "-": () => this.zoom(middle, 2),
        ArrowLeft: () => this.move(-wide / 4), ArrowRight: () => this.move(wide / 4), "0": () => this.see(...this.all),
        Escape: () => this.see(...this.all) }[event.key];
      if (does) { does(); event.preventDefault(); }
    }

    listen(panel) {
      let began = null, picked = null;
      const place = (event) => event.clientX - panel.svg.getBoundingClientRect().left;
      panel.svg.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        this.root.focus({ preventScroll: true });
        began = { x: place(event), moves: event.shiftKey };
        panel.svg.setPointerCapture(event.pointerId);
        if (!began.moves) picked = made(panel.svg, "rect", { class: "picked", y: TOP, height: panel.height - TOP - BOTTOM });
      });
      panel.svg.addEventListener("pointermove", (event) => {
        const x = place(event);
        if (began?.moves) {
          this.move(this.ms(began.x) - this.ms(x));
          began.x = x;
        } else if (began) {
          picked.setAttribute("x", Math.min(began.x, x));
          picked.setAttribute("width", Math.abs(x - began.x));
        }
        this.tell(event, x);
      });
      const ends = (event) => {
        const x = place(event), was = began;
        picked?.remove();
        began = picked = null;
        if (was && !was.moves && event.type === "pointerup" && Math.abs(x - was.x) > 4)
          this.see(...[this.ms(was.x), this.ms(x)].sort((a, b) => a - b));
      };
      panel.svg.addEventListener("pointerup", ends);
      panel.svg.addEventListener("pointercancel", ends);
      panel.svg.addEventListener("pointerleave", () => { if (!began) this.silent(); });
      panel.svg.addEventListener("dblclick", () => this.see(...this.all));
      panel.svg.addEventListener("wheel", (event) => {
        event.preventDefault();
        this.zoom(this.ms(place(event)), event.deltaY < 0 ? 0.8 : 1.25);
      }, { passive: false });
    }

    // The facts of the batch that was planned last before the pointer.
    tell(event, x) {
      const { at, batches, bars } = this.chart, row = from(at, this.ms(x) + 1) - 1;
      if (row < 0 || x < LEFT || x > this.width - RIGHT) { this.silent(); return; }
      const text = [`batch ${batches[row]}  ${iso(at[row])}`];
      const lines = this.lines.filter((line) => !this.hidden.has(line.name)).reverse();
      for (const line of lines.slice(0, 24))
        text.push(`${line.values[row] === null ? "none".padEnd(19) : second(line.values[row])}  ${line.name}`);
      if (lines.length > 24) text.push(`and ${lines.length - 24} more`);
      for (const one of bars) {
        const value = one.values[row];
        text.push(`${(value === null ? "not known" : one.ms ? span(value) : value.toLocaleString("en")).padEnd(19)}  ${one.title}`);
      }
      facts.textContent = text.join("\n");
      facts.hidden = false;
      const box = facts.getBoundingClientRect();
      facts.style.left = `${Math.max(4, event.clientX + 18 + box.width > innerWidth ? event.clientX - box.width - 18 : event.clientX + 18)}px`;
      facts.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - box.height - 4))}px`;
      for (const panel of this.panels) {
        panel.cross?.remove();
        panel.cross = made(panel.svg, "line", { class: "cross", x1: x, x2: x, y1: TOP, y2: panel.height - BOTTOM });
      }
    }
    silent() {
      facts.hidden = true;
      for (const panel of this.panels) panel.cross?.remove();
    }

    draw() {
      this.width = Math.max(this.root.clientWidth, 320);
      // One point more on each side, so that lines reach the edges.
      const { at } = this.chart;
      this.rows = [Math.max(from(at, this.seen[0]) - 1, 0), Math.min(from(at, this.seen[1]) + 1, at.length)];
      for (const panel of this.panels) {
        panel.svg.replaceChildren();
        panel.svg.setAttribute("viewBox", `0 0 ${this.width} ${panel.height}`);
        const when = panel === this.panels[0] ? `; batches planned from ${second(this.seen[0])} to ${second(this.seen[1])}` : "";
        made(panel.svg, "text", { class: "title", x: LEFT, y: 14 }, panel.title + when);
        this.times(panel);
        const id = `clip${this.number}-${this.panels.indexOf(panel)}`;
        const clip = made(made(panel.svg, "defs"), "clipPath", { id });
        // Wide enough for a dot at either edge.
        made(clip, "rect", { x: LEFT - DOT, y: TOP - DOT, width: this.width - LEFT - RIGHT + 2 * DOT,
          height: panel.height - TOP - BOTTOM + 2 * DOT });
        const plot = made(panel.svg, "g", { "clip-path": `url(#${id})` });
        this[panel.kind](panel, plot);
        panel.svg.append(plot); // above the grid
      }
      this.root.dataset.seen = this.seen.join(" ");
    }

    times(panel) {
      const [marks, step] = timeSteps(...this.seen, Math.max(2, Math.floor(this.width / 130)));
      for (const ms of marks) {
        const x = this.x(ms);
        made(panel.svg, "line", { class: "grid", x1: x, x2: x, y1: TOP, y2: panel.height - BOTTOM });
        const anchor = x > this.width - 40 ? "end" : "middle"; // a label at the edge would be cut off
        made(panel.svg, "text", { x: anchor === "end" ? this.width - 2 : x, y: panel.height - 8, "text-anchor": anchor },
          timeText(ms, step));
      }
    }

    watermarks(panel, plot) {
      const { lowest, highest } = this.chart, [first, end] = this.rows, lines = this.lines.filter((line) => !this.hidden.has(line.name));
      let low = Infinity, high = -Infinity;
      const columns = this.chart.leftOut ? [...lines.map((line) => line.values), lowest, highest] : lines.map((line) => line.values);
      for (const values of columns)
        for (let row = first; row < end; row++)
          if (values[row] !== null) { low = Math.min(low, values[row]); high = Math.max(high, values[row]); }
      if (low > high) { made(panel.svg, "text", { x: LEFT + 8, y: TOP + 20 }, "no watermark here"); return; }
      const air = Math.max((high - low) * 0.04, 1);
      low -= air; high += air;
      const y = (ms) => panel.height - BOTTOM - ((ms - low) / (high - low)) * (panel.height - TOP - BOTTOM);
      const [marks, step] = timeSteps(low, high, 8);
      for (const ms of marks) {
        made(panel.svg, "line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(ms), y2: y(ms) });
        made(panel.svg, "text", { x: LEFT - 6, y: y(ms) + 4, "text-anchor": "end" }, timeText(ms, step));
      }
      if (this.chart.leftOut) this.band(plot, lowest, highest, y);
      for (const line of lines) {
        const { path, dots } = this.stairs(line.values, y);
        made(plot, "path", { class: "line", d: path, stroke: line.colour, "stroke-width": line.width,
          "stroke-dasharray": line.dash });
        for (const [x, height] of dots)
          made(plot, "circle", { cx: x, cy: height, r: (line.width + DOT) / 2, fill: line.colour });
      }
    }

    // A watermark holds until the next batch tells another. One without a batch beside it has no line: it is a dot.
    stairs(values, y) {
      const { at } = this.chart, [first, end] = this.rows, parts = [], dots = [];
      for (let row = first; row < end; row++) {
        if (values[row] === null) continue;
        const x = this.x(at[row]).toFixed(1), height = y(values[row]).toFixed(1);
        const follows = row > first && values[row - 1] !== null, leads = row + 1 < end && values[row + 1] !== null;
        parts.push(follows ? `H${x}V${height}` : `M${x} ${height}`);
        if (!follows && !leads) dots.push([x, height]);
      }
      return { path: parts.join(""), dots };
    }

    band(plot, lowest, highest, y) {
      const { at } = this.chart, [first, end] = this.rows, upper = [], lower = [];
      for (let row = first; row < end; row++) {
        if (lowest[row] === null) continue;
        upper.push(`${this.x(at[row]).toFixed(1)} ${y(highest[row]).toFixed(1)}`);
        lower.push(`${this.x(at[row]).toFixed(1)} ${y(lowest[row]).toFixed(1)}`);
      }
      if (upper.length) made(plot, "path", { class: "band", d: `M${[...upper, ...lower.reverse()].join("L")}Z` });
    }

    idle(panel, plot) {
      panel.idle.forEach((track, n) => {
        const y = TOP + 14 * n, colour = COLOURS[this.chart.tracks.indexOf(track) % COLOURS.length];
        const name = track.name.length > 14 ? `…${track.name.slice(-13)}` : track.name;
        const label = made(panel.svg, "text", { x: LEFT - 6, y: y + 11, "text-anchor": "end" }, name);
        made(label, "title", {}, track.name);
        for (const [begin, end] of track.idle)
          made(plot, "rect", { x: this.x(begin), y: y + 2, width: Math.max(this.x(end) - this.x(begin), 2), height: 10, fill: colour });
      });
    }

    bars(panel, plot) {
      const { at } = this.chart, [first, end] = this.rows, { values, ms } = panel.bars;
      const high = Math.max(...values.slice(first, end).map((value) => value ?? 0), 1);
      const y = (value) => panel.height - BOTTOM - (value / high) * (panel.height - TOP - BOTTOM);
      const marks = ms ? timeSteps(0, high, 3)[0] : numberSteps(high, 3);
      for (const value of marks) {
        made(panel.svg, "line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(value), y2: y(value) });
        made(panel.svg, "text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, ms ? span(value) : value.toLocaleString("en"));
      }
      const parts = [];
      for (let row = first; row < end; row++)
        if (values[row]) parts.push(`M${this.x(at[row]).toFixed(1)} ${y(0)}V${y(values[row]).toFixed(1)}`);
      made(plot, "path", { class: "line", d: parts.join(""), stroke: panel.title.startsWith("Late") ? SPARK : COALESCED,
        "stroke-width": Math.max(1.5, Math.min(8, (0.6 * (this.width - LEFT - RIGHT)) / Math.max(end - first, 1))) });
    }
  }

  const charts = figures.charts.map((chart, number) => {
    const one = new Chart(chart, document.querySelector("main"));
    one.number = number;
    return one;
  });
  const draw = () => { for (const chart of charts) chart.draw(); };
  addEventListener("resize", draw);
  draw();
})();
