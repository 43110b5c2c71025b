"use strict";
// Drawing functions of both pages: canvases that follow the width and colour scheme, a tooltip at the pointer, lines, a
// timeline of tasks by lane, and a map of memory. They use no library and load nothing from a network.
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

// Calls draw(context, width, height), in CSS pixels, whenever the size or the colours change.
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
  // Values outside the middle 99%, as in a noisy start, would flatten the rest.
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

// Bytes by kind as one bar in a row, relative to `whole` bytes.
function stackedBar(label, kinds, whole, total, note) {
  const bar = el("div", { class: "bar" });
  // Kinds peak at different times and add up to more than the peak, so the bar shows their shares of the peak.
  const sum = kinds.reduce((a, b) => a + b, 0) || 1;
  kinds.forEach((n, i) => {
    if (!n) return;
    const part = el("span", { style: `width:${((n / sum) * total * 100) / whole}%;background:var(--c${i})` });
    part.addEventListener("pointermove", (e) => showTip(e, lines(`${data_kinds()[i]}: ${bytes(n)} at its peak`)));
    part.addEventListener("pointerleave", () => showTip(null, null));
    bar.append(part);
  });
  return [el("div", { class: "l" }, label), bar, el("div", { class: "n" }, note)];
}

