"use strict";
// What both pages draw with: canvases that follow width and colour scheme, a tip at the pointer, lines, a timeline of
// tasks by lane, a map of memory. No library, nothing from a network.
const data = JSON.parse(document.getElementById("data").textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (i) => css("--c" + (i % 9));

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
const main = document.querySelector("main");
const section = (title, ...children) => {
  const node = el("section", {}, title ? el("h2", {}, title) : null, ...children);
  main.append(node);
  return node;
};

function bytes(n) {
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (n >= size) return (n / size).toFixed(n / size < 10 ? 2 : n / size < 100 ? 1 : 0) + " " + unit;
  return n + " B";
}
function short(n) {
  if (!isFinite(n)) return "-";
  const a = Math.abs(n);
  if (a >= 1e9) return (n / 1e9).toPrecision(3) + "B";
  if (a >= 1e6) return (n / 1e6).toPrecision(3) + "M";
  if (a >= 1e4) return Math.round(n).toLocaleString("en");
  if (a >= 100) return n.toFixed(0);
  if (a >= 1) return n.toPrecision(4);
  if (a === 0) return "0";
  return a >= 1e-3 ? n.toPrecision(3) : n.toExponential(2);
}
function span(ms) {
  if (ms < 1) return (ms * 1000).toFixed(0) + " us";
  if (ms < 1000) return ms.toFixed(ms < 10 ? 2 : 1) + " ms";
  if (ms < 60000) return (ms / 1000).toFixed(1) + " s";
  const minutes = Math.round(ms / 60000);
  return minutes < 60 ? minutes + " min" : Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

const tip = document.body.appendChild(el("div", { id: "tip" }));
function showTip(event, html) {
  if (!html) return (tip.style.display = "none");
  tip.replaceChildren(...html);
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 6);
  const y = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = Math.max(4, y) + "px";
}
const lines = (...texts) => texts.filter((t) => t !== null).map((t) => el("div", {}, t));

// draw(context, width, height) in CSS pixels, whenever size or colours change.
function canvasOf(height, draw) {
  const canvas = el("canvas", { style: `height:${height}px` });
  canvas.redraw = () => {
    const width = canvas.clientWidth, tall = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (!width) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "12px system-ui, sans-serif";
    draw(context, width, tall);
  };
  new ResizeObserver(canvas.redraw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", canvas.redraw);
  return canvas;
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1) || 1, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough) || 10 * size;
  const out = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-6; x += step) out.push(Math.abs(x) < step / 1e6 ? 0 : x);
  return out;
}
function tickText(x, step) {
  if (x === 0) return "0";
  if (Math.abs(x) >= 1e5 || step < 1e-3) return short(x).replace(".00e", "e");
  const digits = Math.max(0, Math.min(4, Math.ceil(-Math.log10(step || 1) - 1e-9)));
  return x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// series: {name, x, y, colour, width, dots, shown}; marks: {x, text, colour}.
function lineChart(title, series, { height = 220, marks = [], unit = "", zero = false, label = "step" } = {}) {
  const used = series.filter((s) => s.x.length);
  const xs = used.flatMap((s) => [s.x[0], s.x[s.x.length - 1]]);
  const x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1);
  // What lies outside the middle 99% of a noisy start would flatten the rest.
  const all = used.flatMap((s) => s.y.filter((y) => y !== null)).sort((a, b) => a - b);
  let y0 = zero ? 0 : all[0], y1 = all[all.length - 1];
  if (!(y1 > y0)) [y0, y1] = [y0 - Math.abs(y0) * 0.1 - 1e-12, y1 + Math.abs(y1) * 0.1 + 1e-12];
  const room = (y1 - y0) * 0.06;
  y1 += room;
  if (!zero) y0 = y0 >= 0 && y0 - room < 0 ? 0 : y0 - room;
  let pointed = null, frame = null;
  const canvas = canvasOf(height, (c, width, tall) => {
    const yTicks = ticks(y0, y1, tall / 45), yStep = yTicks[1] - yTicks[0];
    const texts = yTicks.map((y) => tickText(y, yStep));
    const left = Math.max(...texts.map((t) => c.measureText(t).width)) + 10, right = 10, top = 6, bottom = 24;
    frame = { left, right, width, px: (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right) };
    const py = (y) => top + ((y1 - y) / (y1 - y0)) * (tall - top - bottom);
    c.textBaseline = "middle";
    c.lineWidth = 1;
    yTicks.forEach((y, i) => {
      c.strokeStyle = css("--grid");
      c.beginPath();
      c.moveTo(left, py(y));
      c.lineTo(width - right, py(y));
      c.stroke();
      c.fillStyle = css("--soft");
      c.textAlign = "right";
      c.fillText(texts[i], left - 6, py(y));
    });
    c.textBaseline = "alphabetic";
    const xTicks = ticks(x0, x1, width / 110);
    xTicks.forEach((x) => {
      const text = tickText(x, xTicks[1] - xTicks[0]), half = c.measureText(text).width / 2;
      c.textAlign = "center";
      c.fillText(text, Math.min(Math.max(frame.px(x), left + half), width - right - half), tall - 7);
    });
    for (const mark of marks) {
      if (mark.x < x0 || mark.x > x1) continue;
      c.strokeStyle = mark.colour || css("--soft");
      c.setLineDash([3, 3]);
      c.beginPath();
      c.moveTo(frame.px(mark.x), top);
      c.lineTo(frame.px(mark.x), tall - bottom);
      c.stroke();
      c.setLineDash([]);
    }
    c.save();
    c.beginPath();
    c.rect(left, top - 4, width - left - right + 4, tall - top - bottom + 8);
    c.clip();
    for (const s of used) {
      c.strokeStyle = c.fillStyle = colour(s.colour);
      c.globalAlpha = s.faint ? 0.32 : 1;
      c.lineWidth = s.width || 1.8;
      c.lineJoin = "round";
      c.beginPath();
      let down = false;
      s.x.forEach((x, i) => {
        if (s.y[i] === null) return (down = false);
        if (down) c.lineTo(frame.px(x), py(s.y[i]));
        else c.moveTo(frame.px(x), py(s.y[i]));
        down = true;
      });
      c.stroke();
      if (s.dots || s.x.length === 1)
        s.x.forEach((x, i) => {
          if (s.y[i] === null) return;
          c.beginPath();
          c.arc(frame.px(x), py(s.y[i]), 3, 0, 7);
          c.fill();
        });
      c.globalAlpha = 1;
    }
    if (pointed !== null) {
      c.strokeStyle = css("--soft");
      c.lineWidth = 1;
      c.beginPath();
      c.moveTo(frame.px(pointed), top);
      c.lineTo(frame.px(pointed), tall - bottom);
      c.stroke();
    }
    c.restore();
  });
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1;
      else high = middle;
    }
    return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  };
  canvas.addEventListener("pointermove", (event) => {
    if (!frame) return;
    const box = canvas.getBoundingClientRect();
    const x = x0 + ((event.clientX - box.left - frame.left) / (frame.width - frame.left - frame.right)) * (x1 - x0);
    const i = nearest(used[0].x, x);
    pointed = used[0].x[i];
    const texts = used.map((s) => {
      const at = nearest(s.x, pointed);
      if (s.dots && Math.abs(s.x[at] - pointed) > (x1 - x0) / 40) return null;
      const where = s.x[at] === pointed ? "" : ` (step ${s.x[at]})`;
      return `${s.name}: ${s.y[at] === null ? "not finite" : short(s.y[at]) + unit}${where}`;
    });
    const close = marks.filter((m) => Math.abs(frame.px(m.x) - frame.px(pointed)) < 4).slice(0, 3);
    showTip(event, lines(`${label} ${pointed.toLocaleString("en")}`, ...texts, ...close.map((m) => m.text)));
    canvas.redraw();
  });
  canvas.addEventListener("pointerleave", () => {
    pointed = null;
    showTip(null, null);
    canvas.redraw();
  });
  return [title ? el("h2", {}, title) : null, canvas];
}

const legend = (entries) =>
  el("div", { class: "legend" }, entries.map(([name, i]) => el("span", {}, el("i", { style: `background:var(--c${i})` }), name)));

// Bytes by kind as one bar of a row: against `whole` bytes.
function stackedBar(label, kinds, whole, total, note) {
  const bar = el("div", { class: "bar" });
  // Kinds have their own largest moments and add up to more than the peak: shares of the peak are what is drawn.
  const sum = kinds.reduce((a, b) => a + b, 0) || 1;
  kinds.forEach((n, i) => {
    if (!n) return;
    const part = el("span", { style: `width:${((n / sum) * total * 100) / whole}%;background:var(--c${i})` });
    part.addEventListener("pointermove", (e) => showTip(e, lines(`${data_kinds()[i]}: ${bytes(n)} at its largest moment`)));
    part.addEventListener("pointerleave", () => showTip(null, null));
    bar.append(part);
  });
  return [el("div", { class: "l" }, label), bar, el("div", { class: "n" }, note)];
}

// What a task stood still for: the awaited task of this step, or its lane's, that ended last.
function waitsOf(plan, times, t) {
  let best = -1;
  for (const w of plan.tasks.waits[t]) if (w < t && times.end[w] > 0 && (best < 0 || times.end[w] > times.end[best])) best = w;
  let before = -1;
  for (let i = t - 1; i >= 0; --i)
    if (plan.tasks.lane[i] === plan.tasks.lane[t] && times.end[i] > 0) {
      before = i;
      break;
    }
  const free = before < 0 ? 0 : times.end[before];
  return best >= 0 && times.end[best] > free ? { task: best, idle: times.end[best] - free } : null;
}
const nameOf = (plan, t) => plan.names[plan.tasks.name[t]];
const firstWord = (text) => text.split(" ")[0];
const kWords = ["forward", "backward", "loss", "gather", "reduce", "update", "recompute", "read"];
const wordColour = (text) => {
  const alike = { upload: 7, download: 7, write: 7, combine: 4, accumulate: 4, round: 4 };
  const word = firstWord(text), i = kWords.indexOf(word);
  return i >= 0 ? i : word in alike ? alike[word] : 8;
};

// Tasks by lane; of several timings the first is drawn above the second in each lane: {name, begin, end} in us.
function timeline(plan, timings) {
  const used = plan.lanes.map((name, i) => i).filter((i) => plan.tasks.lane.some((lane, t) => lane === i && timings.some((times) => times.end[t] > 0)));
  const end = Math.max(...timings.flatMap((t) => [t.end.reduce((a, b) => Math.max(a, b), 0)]), 1);
  let from = 0, to = end, pointed = null, frame = null;
  const rowHeight = 17, gap = 12, group = timings.length * rowHeight + gap + 13;
  const height = used.length * group + 30;
  const said = el("div", { class: "said" }, "Point at a task, or tap it: its time, and what it waited for.");
  const canvas = canvasOf(height, (c, width, tall) => {
    const left = 2, right = 4;
    const px = (us) => left + ((us - from) / (to - from)) * (width - left - right);
    frame = { left, right, width, px };
    c.textBaseline = "alphabetic";
    c.strokeStyle = css("--grid");
    c.fillStyle = css("--soft");
    const [unit, us] = to - from < 2e3 ? ["us", 1] : to - from < 2e7 ? ["ms", 1e3] : ["s", 1e6];
    const marks = ticks(from / us, to / us, width / 110);
    for (const mark of marks) {
      c.beginPath();
      c.moveTo(px(mark * us), 0);
      c.lineTo(px(mark * us), tall - 20);
      c.stroke();
      const text = tickText(mark, marks[1] - marks[0]) + " " + unit, half = c.measureText(text).width / 2;
      c.textAlign = "center";
      c.fillText(text, Math.min(Math.max(px(mark * us), half + left), width - half - right), tall - 5);
    }
    used.forEach((lane, g) => {
      c.textAlign = "left";
      c.fillStyle = css("--soft");
      const names = timings.length > 1 ? ` (${timings.map((t) => t.name).join(", below: ")})` : "";
      c.fillText(plan.lanes[lane] + (g === 0 ? names : ""), left, g * group + 11);
      timings.forEach((times, row) => {
        const y = g * group + 15 + row * rowHeight;
        c.fillStyle = css("--grid");
        c.fillRect(left, y, width - left - right, rowHeight - 2);
        let drawnTo = -1, drawnColour = -1;
        for (let t = 0; t < times.begin.length; ++t) {
          if (plan.tasks.lane[t] !== lane || times.end[t] <= 0) continue;
          const a = Math.max(px(times.begin[t]), left), b = Math.min(px(times.end[t]), width - right);
          if (b < left || a > width - right) continue;
          const k = wordColour(nameOf(plan, t));
          if (b < drawnTo + 0.3 && k === drawnColour) continue;  // thousands within a pixel
          c.fillStyle = colour(k);
          c.globalAlpha = pointed && pointed.row === row && pointed.task === t ? 1 : 0.82;
          c.fillRect(a, y, Math.max(b - a - (b - a > 3 ? 0.6 : 0), 0.6), rowHeight - 2);
          drawnTo = Math.max(a + 0.6, b);
          drawnColour = k;
        }
        c.globalAlpha = 1;
      });
    });
    if (pointed) {
      const times = timings[pointed.row], t = pointed.task;
      const yOf = (task) => used.indexOf(plan.tasks.lane[task]) * group + 15 + pointed.row * rowHeight;
      c.strokeStyle = css("--ink");
      c.lineWidth = 1.5;
      c.strokeRect(px(times.begin[t]), yOf(t), Math.max(px(times.end[t]) - px(times.begin[t]), 1), rowHeight - 2);
      for (const w of plan.tasks.waits[t]) {
        if (w >= t || times.end[w] <= 0 || used.indexOf(plan.tasks.lane[w]) < 0) continue;
        c.beginPath();
        c.moveTo(px(times.end[w]), yOf(w) + rowHeight / 2);
        c.lineTo(px(times.begin[t]), yOf(t) + rowHeight / 2);
        c.stroke();
      }
    }
  });
  const find = (event) => {
    if (!frame) return null;
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const g = Math.floor(y / group), row = Math.floor((y - g * group - 15) / rowHeight);
    if (g < 0 || g >= used.length || row < 0 || row >= timings.length) return null;
    const times = timings[row], slack = ((to - from) / frame.width) * 3;
    const us = from + ((x - frame.left) / (frame.width - frame.left - frame.right)) * (to - from);
    let best = null, distance = slack;
    for (let t = 0; t < times.begin.length; ++t) {
      if (plan.tasks.lane[t] !== used[g] || times.end[t] <= 0) continue;
      const d = us < times.begin[t] ? times.begin[t] - us : us > times.end[t] ? us - times.end[t] : 0;
      if (d < distance) [best, distance] = [{ row, task: t }, d];
    }
    return best;
  };
  const point = (event) => {
    pointed = find(event);
    if (pointed) {
      const times = timings[pointed.row], t = pointed.task, wait = waitsOf(plan, times, t);
      const texts = [
        el("b", {}, nameOf(plan, t)),
        `${plan.lanes[plan.tasks.lane[t]]}${timings.length > 1 ? ", " + times.name : ""}: ` +
          `${span((times.end[t] - times.begin[t]) / 1000)} from ${span(times.begin[t] / 1000)} on`,
        wait ? `its lane stood still for ${span(wait.idle / 1000)}, until ${nameOf(plan, wait.task)} was done` : "waited for nothing but its lane",
      ];
      said.replaceChildren(...lines(...texts));
      showTip(event, lines(...texts.map((x) => (x instanceof Node ? x.cloneNode(true) : x))));
    } else showTip(null, null);
    canvas.redraw();
  };
  let grabbed = null;
  canvas.addEventListener("pointerdown", (e) => {
    grabbed = { x: e.clientX, from, to };
    point(e);
  });
  addEventListener("pointerup", () => (grabbed = null));
  canvas.addEventListener("pointermove", (e) => {
    if (grabbed && e.buttons && frame) {
      const width = grabbed.to - grabbed.from;
      const moved = ((grabbed.x - e.clientX) / frame.width) * width;
      from = Math.min(Math.max(0, grabbed.from + moved), end - width);
      to = from + width;
      showTip(null, null);
      return canvas.redraw();
    }
    point(e);
  });
  canvas.addEventListener("pointerleave", () => {
    pointed = null;
    showTip(null, null);
    canvas.redraw();
  });
  const zoom = (factor) => {
    const middle = (from + to) / 2, width = Math.min(end, Math.max((to - from) * factor, end / 1e5));
    from = Math.max(0, Math.min(middle - width / 2, end - width));
    to = from + width;
    canvas.redraw();
  };
  const tools = el("div", { class: "tools" }, el("button", { onclick: () => zoom(0.5) }, "zoom in"),
    el("button", { onclick: () => zoom(2) }, "zoom out"), el("button", { onclick: () => zoom(1e9) }, "whole step"),
    el("span", { class: "soft" }, "drag to move"));
  const words = [...new Set(plan.tasks.name.map((n, t) => (used.includes(plan.tasks.lane[t]) ? firstWord(plan.names[n]) : null)))];
  const known = new Map();
  for (const word of words.filter(Boolean)) {
    const i = wordColour(word);
    known.set(i, known.has(i) ? known.get(i) + ", " + word : word);
  }
  return [tools, legend([...known].sort((a, b) => a[0] - b[0]).map(([i, names]) => [names, i])), canvas, said];
}

// Every buffer of a tier: tasks from left to right, addresses from bottom to top.
function memoryMap(plan, tier) {
  const buffers = plan.buffers.filter((b) => b[1] === tier), height = buffers.length < 5 ? 70 + 20 * buffers.length : 340;
  const peak = plan.tiers[tier].peak, count = plan.tasks.lane.length;
  let frame = null, pointed = null;
  const said = el("div", { class: "said" }, "Point at a buffer, or tap it: its name, its bytes, and the tasks between which it lives.");
  const canvas = canvasOf(height, (c, width, tall) => {
    const left = 2, right = 2, bottom = 20, top = 2;
    const px = (t) => left + (t / count) * (width - left - right), py = (b) => top + (1 - b / peak) * (tall - top - bottom);
    frame = { px, py, left, right, top, bottom, width, tall };
    c.fillStyle = css("--grid");
    c.fillRect(left, top, width - left - right, tall - top - bottom);
    for (const b of buffers) {
      const [, , kind, offset, size, first, last] = b;
      const x = px(first), w = Math.max(px(last + 1) - x, 0.8), y = py(offset + size), h = Math.max(py(offset) - y, 0.8);
      c.fillStyle = colour(kind);
      c.globalAlpha = b === pointed ? 1 : 0.78;
      c.fillRect(x, y, w, h);
      if (w > 4 && h > 4) {
        c.strokeStyle = css("--card");
        c.lineWidth = 0.6;
        c.globalAlpha = 0.9;
        c.strokeRect(x, y, w, h);
      }
    }
    c.globalAlpha = 1;
    if (pointed) {
      const [, , , offset, size, first, last] = pointed;
      c.strokeStyle = css("--ink");
      c.lineWidth = 2;
      c.strokeRect(px(first), py(offset + size), Math.max(px(last + 1) - px(first), 2), Math.max(py(offset) - py(offset + size), 2));
    }
    c.fillStyle = css("--soft");
    c.textAlign = "left";
    c.fillText("first task", left, tall - 5);
    c.textAlign = "right";
    c.fillText(`last of ${count.toLocaleString("en")} tasks`, width - right, tall - 5);
  });
  const point = (event) => {
    if (!frame) return;
    const box = canvas.getBoundingClientRect();
    const t = ((event.clientX - box.left - frame.left) / (frame.width - frame.left - frame.right)) * count;
    const at = (1 - (event.clientY - box.top - frame.top) / (frame.tall - frame.top - frame.bottom)) * peak;
    const slack = (peak / frame.tall) * 2, beside = (count / frame.width) * 2;
    pointed = null;
    for (const b of buffers)
      if (t >= b[5] - beside && t <= b[6] + 1 + beside && at >= b[3] - slack && at <= b[3] + b[4] + slack)
        if (!pointed || b[4] < pointed[4]) pointed = b;
    if (pointed) {
      const [name, , kind, offset, size, first, last, whole] = pointed;
      const texts = [
        el("b", {}, plan.names[name]),
        `${bytes(size)} of ${data_kinds()[kind]}, at ${bytes(offset)}`,
        whole ? "lives from step to step" : `from task ${first} (${nameOf(plan, first)}) to task ${last} (${nameOf(plan, last)})`,
      ];
      said.replaceChildren(...lines(...texts));
      showTip(event, lines(...texts.map((x) => (x instanceof Node ? x.cloneNode(true) : x))));
    } else showTip(null, null);
    canvas.redraw();
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("pointerleave", () => {
    pointed = null;
    showTip(null, null);
    canvas.redraw();
  });
  return [canvas, said];
}

// Milliseconds by what they went to, as rows of bars: [{name, values: {word: ms}}].
function boundBars(rows) {
  const words = [...new Set(rows.flatMap((r) => Object.keys(r.values)))].filter((w) => rows.some((r) => (r.values[w] || 0) > 0));
  const most = Math.max(...rows.map((r) => Object.values(r.values).reduce((a, b) => a + b, 0)), 1e-9);
  const order = rows[0] ? Object.keys(rows[0].values) : [];
  const box = el("div", { class: "bars" });
  for (const row of rows) {
    const bar = el("div", { class: "bar" });
    const total = Object.values(row.values).reduce((a, b) => a + b, 0);
    for (const word of words) {
      const ms = row.values[word] || 0;
      if (!ms) continue;
      const part = el("span", { style: `width:${(ms / most) * 100}%;background:var(--c${order.indexOf(word)})` });
      part.addEventListener("pointermove", (e) => showTip(e, lines(`${word}: ${span(ms)}, ${((ms / total) * 100).toFixed(0)}% of ${row.name}`)));
      part.addEventListener("pointerleave", () => showTip(null, null));
      bar.append(part);
    }
    box.append(el("div", { class: "l" }, row.name), bar, el("div", { class: "n" }, span(total)));
  }
  const table = el("table", {}, el("tr", {}, el("th", {}, ""), rows.map((r) => el("th", { class: "r" }, r.name))),
    words.map((w) => el("tr", {}, el("td", {}, w), rows.map((r) => el("td", { class: "r" }, span(r.values[w] || 0))))));
  return [legend(words.map((w) => [w, order.indexOf(w)])), box, el("div", { class: "scroll", style: "margin-top:10px" }, table)];
}
