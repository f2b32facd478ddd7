"use strict";
// Added to the dashboard by dashboard_browser_test.py. Once the page has drawn itself several times, leaves what it finds in
// #probe.
(() => {
  const colour = (element, property) => getComputedStyle(element)[property];
  const look = () => {
    if (Number(document.body.dataset.updates ?? 0) < 3) { setTimeout(look, 200); return; }
    const charts = [...document.querySelectorAll(".chart")].map((chart) => {
      const svg = chart.querySelector(".plot > svg");
      if (!svg) return { title: chart.querySelector("h3").textContent, empty: true };
      const area = svg.getBoundingClientRect();
      svg.dispatchEvent(new PointerEvent("pointermove", { clientX: area.left + area.width * 0.8, clientY: area.top + 50 }));
      const tip = chart.querySelector(".tip"), shown = !tip.hidden, lines = [...tip.querySelectorAll("div")].map((line) => line.innerText.split("\n"));
      const tipBox = tip.getBoundingClientRect(), box = chart.getBoundingClientRect();
      svg.dispatchEvent(new PointerEvent("pointerleave"));
      return {
        title: chart.querySelector("h3").textContent, name: svg.querySelector("title").textContent,
        series: [...svg.querySelectorAll(".series:not(.limit)")].map((one) => ({ box: (({ width, height }) => [width, height])(one.getBBox()), colour: colour(one.querySelector(".stroke"), "stroke") })),
        ticks: [...svg.querySelectorAll(".tick")].map((tick) => tick.textContent), legend: chart.querySelectorAll(".legend span").length,
        shown, lines, inside: tipBox.left >= box.left - 1 && tipBox.right <= box.right + 1, left: tip.hidden,
      };
    });
    const ink = document.querySelector("h1"), soft = document.querySelector(".lead"), card = document.querySelector(".tier");
    const found = {
      charts,
      state: document.getElementById("state").textContent, stateLook: document.getElementById("state").className,
      figures: [...document.querySelectorAll(".figures > div")].map((one) => one.innerText.split("\n")),
      tiers: [...document.querySelectorAll(".tier")].map((one) => ({ name: one.querySelector("h3").innerText, width: one.querySelector(".bar i").getBoundingClientRect().width + one.querySelector(".bar i.idle").getBoundingClientRect().width })),
      tables: Object.fromEntries([...document.querySelectorAll(".table")].map((one) => [one.id, { hidden: one.hidden, rows: [...one.querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent)) }])),
      needed: document.documentElement.scrollWidth, width: innerWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches,
      paper: colour(document.body, "backgroundColor"), ink: colour(ink, "color"), soft: colour(soft, "color"), card: colour(card, "backgroundColor"),
      markup: document.querySelectorAll("#evil").length,
      resources: performance.getEntriesByType("resource").map((one) => one.name),
    };
    const out = document.createElement("pre");
    out.id = "probe";
    out.textContent = JSON.stringify(found);
    document.body.append(out);
  };
  look();
})();
