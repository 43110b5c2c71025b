// The task that kept the lane of task t idle: the last to end of those that t waits for in this step, if the lane was
// free by then.
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

// Tasks by lane. With several timings ({name, begin, end} in us), the first is drawn above the second in each lane.
function timeline(plan, timings) {
  const used = plan.lanes.map((name, i) => i).filter((i) => plan.tasks.lane.some((lane, t) => lane === i && timings.some((times) => times.end[t] > 0)));
  const end = Math.max(...timings.flatMap((t) => [t.end.reduce((a, b) => Math.max(a, b), 0)]), 1);
  let from = 0, to = end, pointed = null, frame = null;
  const rowHeight = 17, gap = 12, group = timings.length * rowHeight + gap + 13;
  const height = used.length * group + 30;
  const said = el("div", { class: "said" }, "Point at or tap a task to see its time and what it waited for.");
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
          if (b < drawnTo + 0.3 && k === drawnColour) continue;  // thousands of tasks may share a pixel
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
          `${span((times.end[t] - times.begin[t]) / 1000)}, starting at ${span(times.begin[t] / 1000)}`,
        wait ? `its lane was idle for ${span(wait.idle / 1000)}, until ${nameOf(plan, wait.task)} was done` : "waited only for its lane",
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

// All buffers of a tier, with tasks from left to right and addresses from bottom to top.
function memoryMap(plan, tier) {
  const buffers = plan.buffers.filter((b) => b[1] === tier), height = buffers.length < 5 ? 70 + 20 * buffers.length : 340;
  const peak = plan.tiers[tier].peak, count = plan.tasks.lane.length;
  let frame = null, pointed = null;
  const said = el("div", { class: "said" }, "Point at or tap a buffer to see its name, its bytes, and the tasks between which it lives.");
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

// Where the milliseconds went, as rows of bars: [{name, values: {word: ms}}].
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
