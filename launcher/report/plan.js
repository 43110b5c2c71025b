"use strict";
// The page of a plan: the recipe's ZeRO stage next to the others.
function data_kinds() {
  return ["parameters", "gradients", "optimizer", "activations", "workspace", "staging"];
}
document.title = data.title;
main.append(el("h1", {}, data.title), el("p", { class: "soft" }, data.subtitle));

const cards = el("div", { class: "bars" });
const most = Math.max(...data.stages.map((s) => s.tiers.reduce((a, t) => a + t.peak, 0)));
for (const s of data.stages) {
  const kinds = data_kinds().map((k, i) => s.tiers.reduce((a, t) => a + t.kinds[i], 0));
  const total = s.tiers.reduce((a, t) => a + t.peak, 0);
  cards.append(...stackedBar(`ZeRO-${s.stage}${s.stage === data.stage ? " (the recipe's)" : ""}`, kinds, most, total,
    `${bytes(total)}, ${s.order} order${s.fits ? "" : ", does not fit"}, ${span(s.step_ms)}, ${bytes(s.sent_bytes)} sent`));
}
section("Stages: memory of a rank, time of a step, bytes that a rank sends in it", legend(data_kinds().map((k, i) => [k, i])), cards,
  el("p", { class: "soft", style: "margin-top:8px" }, data.speeds));

const tools = el("div", { class: "tools", style: "margin-top:14px" });
main.append(tools);
const detail = el("div", {});
main.append(detail);
function show(stage) {
  for (const button of tools.children) button.setAttribute("aria-pressed", button.dataset.stage === String(stage));
  const plan = data.stages.find((s) => s.stage === stage);
  detail.replaceChildren();
  plan.tiers.forEach((tier, i) => {
    if (!tier.peak) return;
    detail.append(el("section", {}, el("h2", {}, `${tier.name}: ${bytes(tier.peak)}${tier.capacity ? " of " + bytes(tier.capacity) : ""}`),
      el("p", { class: "soft" }, "Every buffer with its place and lifetime: tasks from left to right, addresses from bottom to top."),
      legend(data_kinds().map((k, j) => [k, j]).filter(([, j]) => tier.kinds[j])), ...memoryMap(plan, i)));
  });
  detail.append(el("section", {}, el("h2", {}, `The step, simulated: ${span(plan.step_ms)}`), el("p", { class: "soft" }, data.speeds),
    ...timeline(plan, [{ name: "planned", begin: plan.tasks.begin, end: plan.tasks.end }])));
  if (Object.keys(plan.path).length)
    detail.append(el("section", {}, el("h2", {}, "Where the step's time goes, along its critical path"), ...boundBars([{ name: `ZeRO-${stage}`, values: plan.path }])));
}
for (const s of data.stages) tools.append(el("button", { "data-stage": s.stage, onclick: () => show(s.stage) }, `ZeRO-${s.stage}`));
show(data.stage);
if (data.recipe) section("Recipe", el("pre", {}, data.recipe));
