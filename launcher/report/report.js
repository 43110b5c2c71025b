"use strict";
// The page of a run.
const plan = data.plan, summary = data.summary, steps = data.steps;
function data_kinds() {
  return ["parameters", "gradients", "optimizer", "activations", "workspace", "staging"];
}
const last = steps.step.length - 1;
document.title = data.title;
main.append(el("h1", {}, data.title), el("p", { class: "soft" }, data.subtitle));

function tile(name, value) {
  return value === null || value === undefined ? null : el("div", {}, el("b", {}, value), el("span", { class: "soft" }, name));
}
const finite = (list) => list.filter((x) => x !== null);
const middle = (list) => {
  const sorted = finite(list).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : NaN;
};
main.append(el("div", { class: "tiles" },
  tile("steps", steps.step[last]?.toLocaleString("en")),
  tile("loss at the end", last >= 0 && steps.loss[last] !== null ? short(steps.loss[last]) : null),
  tile("evaluation at the end", data.evaluations.step.length ? short(data.evaluations.loss.at(-1)) : null),
  tile("tokens/s, median", last >= 0 ? short(middle(steps.tokens_per_s)) : null),
  tile("epochs", last >= 0 && steps.epoch[last] !== null ? steps.epoch[last].toFixed(2) : null),
  tile("ranks", summary?.ranks),
  tile("peak of a rank", summary ? bytes(summary.memory.device.measured_peak_bytes) : null)));

if (last >= 0) {
  // The mean of the same number of points before and after, so that the curve does not lag and ends with the run.
  const reach = Math.floor(steps.step.length / 40);
  const smooth = (ys) => {
    const sums = [0], counts = [0];
    for (const y of ys) {
      sums.push(sums.at(-1) + (y ?? 0));
      counts.push(counts.at(-1) + (y === null ? 0 : 1));
    }
    return ys.map((y, i) => {
      const half = Math.min(reach, i, ys.length - 1 - i), from = i - half, to = i + half + 1;
      return counts[to] > counts[from] ? (sums[to] - sums[from]) / (counts[to] - counts[from]) : null;
    });
  };
  const at = { checkpoint: 2, resume: 4, start: 8, stop: 3, end: 8, skipped: 1 };
  const marks = data.events.filter((e) => e.step > 0 && e.event !== "start" && e.event !== "end")
    .map((e) => ({ x: e.step, text: `${e.event} (step ${e.step})`, colour: css("--c" + (at[e.event] ?? 8)) }));
  const loss = [
    { name: "loss", x: steps.step, y: steps.loss, colour: 0, width: 1, faint: reach > 0 },
    ...(reach > 0 ? [{ name: "smoothed", x: steps.step, y: smooth(steps.loss), colour: 0, width: 2.2 }] : []),
    { name: "evaluation", x: data.evaluations.step, y: data.evaluations.loss, colour: 1, width: 1.4, dots: true },
  ];
  section("Loss, in nats per token",
    legend([["loss, smoothed over its raw values", 0], ...(data.evaluations.step.length ? [["evaluation", 1]] : []),
      ...[...new Set(data.events.map((e) => e.event))].filter((e) => ["checkpoint", "resume", "stop", "skipped"].includes(e)).map((e) => [e, at[e]])]),
    ...lineChart(null, loss, { height: innerWidth < 760 ? 240 : 320, marks }));
  const grid = el("div", { class: "grid outer" });
  main.append(grid);
  const small = (title, y, options) => grid.append(el("section", {}, ...lineChart(title, [{ name: title, x: steps.step, y, colour: 0, width: 1.4 }], { height: 180, ...options })));
  small("Learning rate", steps.lr, { zero: true });
  small("Gradient norm", steps.grad_norm, { zero: true });
  small("Tokens/s", steps.tokens_per_s, { zero: true });
}

if (summary) {
  const box = el("div", { class: "bars" });
  const whole = {};
  for (const tier of ["device", "host", "nvme"]) {
    const m = summary.memory[tier];
    if (!m || !m.planned_peak_bytes) continue;
    const label = plan?.tiers.find((t) => t.key === tier)?.name || tier;
    const capacity = plan?.tiers.find((t) => t.key === tier)?.capacity || 0;
    whole[tier] = Math.max(capacity, m.planned_peak_bytes, m.measured_peak_bytes);
    const kinds = (of) => data_kinds().map((k) => of[k] || 0);
    const against = capacity ? ` of ${bytes(capacity)}` : "";
    // A model that takes little of a large machine would be invisible, so its bars are drawn relative to the peak.
    const base = capacity && m.planned_peak_bytes < capacity / 20 ? Math.max(m.planned_peak_bytes, m.measured_peak_bytes) : whole[tier];
    box.append(...stackedBar(`${label}, planned`, kinds(m.planned_by_kind), base, m.planned_peak_bytes, bytes(m.planned_peak_bytes) + against),
      ...stackedBar(`${label}, measured`, kinds(m.by_kind), base, m.measured_peak_bytes, bytes(m.measured_peak_bytes) + against));
  }
  section("Memory of a rank", legend(data_kinds().map((k, i) => [k, i])), box,
    el("p", { class: "soft", style: "margin-top:8px" }, "A bar ends at the peak. Its colours are in proportion to the most bytes that each kind takes at any time. " +
      "The full width is the capacity, unless the model takes less than a twentieth of it."));
}

if (plan) {
  const timings = [{ name: "planned", begin: plan.tasks.begin, end: plan.tasks.end }];
  const ranks = data.measured ? data.measured.ranks : [];
  const drawn = el("div", {});
  const draw = (rank) => drawn.replaceChildren(...timeline(plan, rank ? [...timings, { name: "measured", ...rank }] : timings));
  const choice = ranks.length < 2 ? null : el("label", {}, "measured by ",
    el("select", { onchange: (event) => draw(ranks[event.target.selectedIndex]) }, ranks.map((r) => el("option", {}, `rank ${r.rank}`))));
  section(ranks.length ? `A step: planned, and step ${data.measured.step} as ${ranks.length > 1 ? "a" : "its"} rank measured it` : "A step, as planned",
    el("p", { class: "soft" }, plan.speeds), choice, drawn);
  draw(ranks[0]);
  const rows = [];
  if (Object.keys(plan.path).length) rows.push({ name: "planned", values: plan.path });
  if (summary?.critical_path_ms) {
    const values = Object.fromEntries(Object.keys(plan.path).map((w, i) => [w, Object.values(summary.critical_path_ms)[i] || 0]));
    // Time between tasks, waits for cores that other processes use, and the time before and after the step. Older
    // summaries do not have it.
    values["in no task"] = summary.in_no_task_ms ??
      Math.max(0, (data.exposed_step_ms ?? 0) - Object.values(values).reduce((a, b) => a + b, 0));
    if (rows.length) rows[0].values = { ...plan.path, "in no task": 0 };
    rows.push({ name: `step ${summary.exposed_step}, measured`, values });
  }
  if (rows.length) section("Where the step's time goes, along its critical path", ...boundBars(rows));
}

if (data.events.length) {
  const shown = data.events.slice(-200);
  const rows = shown.map((e) => el("tr", {}, el("td", {}, e.time ? new Date(e.time * 1000).toISOString().slice(0, 19).replace("T", " ") : ""),
    el("td", { class: "r" }, e.step ?? ""), el("td", {}, e.event), el("td", {}, e.more || "")));
  section("Events", el("div", { class: "scroll" }, el("table", {}, el("tr", {}, el("th", {}, "time (UTC)"), el("th", { class: "r" }, "step"), el("th", {}, "event"), el("th", {}, "")), rows)));
}
if (data.recipe) section("Recipe", el("pre", {}, data.recipe));
