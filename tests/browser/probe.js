"use strict";
// Runs at the end of a page in the browser, and leaves its findings in #probe for page_browser_test.py.
(() => {
  const round = (number) => Math.round(number * 10) / 10;
  const box = (element) => {
    const { x, y, width, height } = element.getBBox();
    return [x, y, x + width, y + height].map(round);
  };
  const colour = (element, property) => getComputedStyle(element)[property];
  const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
  const tipOf = (chart) => {
    const tip = chart.querySelector(".tip");
    const tipBox = tip.getBoundingClientRect(), chartBox = chart.getBoundingClientRect();
    return {
      shown: !tip.hidden && tipBox.width > 0,
      head: tip.querySelector("b")?.textContent ?? "",
      lines: [...tip.querySelectorAll("div")].map((line) => line.innerText.split("\n")),
      inside: tipBox.left >= chartBox.left - 1 && tipBox.right <= chartBox.right + 1,
    };
  };

  const charts = [...document.querySelectorAll(".chart")].map((chart) => {
    const svg = chart.querySelector(".plot > svg");
    if (!svg) return { title: chart.querySelector("h3").textContent, empty: true };
    const area = svg.getBoundingClientRect();
    const seen = {
      title: chart.querySelector("h3").textContent,
      name: svg.querySelector("title").textContent,
      view: [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height],
      drawn: [area.width, area.height].map(round),
      texts: [...svg.querySelectorAll("text")].map((text) => ({
        kind: text.getAttribute("class"), text: text.textContent, box: box(text),
      })),
      series: [...svg.querySelectorAll(".series")].map((series) => ({
        kind: series.getAttribute("class"),
        box: box(series),
        colour: series.querySelector(".stroke")
          ? colour(series.querySelector(".stroke"), "stroke") : colour(series.querySelector(".body"), "fill"),
      })),
      columns: [...chart.querySelectorAll(".data thead th")].map((cell) => cell.textContent),
      rows: chart.querySelectorAll(".data tbody tr").length,
    };
    svg.dispatchEvent(new PointerEvent("pointermove", {
      clientX: area.left + area.width / 2, clientY: area.top + area.height / 2,
    }));
    seen.pointed = tipOf(chart);
    seen.cursor = svg.querySelectorAll(".cursor > *").length;
    svg.dispatchEvent(new PointerEvent("pointerleave"));
    seen.left = tipOf(chart).shown;
    press(svg, "Home");
    seen.home = tipOf(chart);
    press(svg, "ArrowRight");
    seen.right = tipOf(chart);
    press(svg, "Escape");
    const button = chart.querySelector(".legend button");
    if (button) {
      const first = svg.querySelector(`.series[data-series="${button.dataset.series}"]`);
      button.click();
      seen.off = { display: colour(first, "display"), pressed: button.getAttribute("aria-pressed") };
      button.click();
      seen.on = { display: colour(first, "display"), pressed: button.getAttribute("aria-pressed") };
    }
    return seen;
  });

  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = JSON.stringify({
    live: document.documentElement.dataset.live ?? "",
    title: document.title,
    width: innerWidth,
    needed: document.documentElement.scrollWidth,
    resources: performance.getEntriesByType("resource").map((entry) => entry.name),
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    paper: colour(document.body, "backgroundColor"),
    card: colour(document.querySelector(".chart"), "backgroundColor"),
    ink: colour(document.body, "color"),
    soft: colour(document.querySelector(".plot text"), "fill"),
    markup: document.querySelectorAll("b#evil, img").length,
    figures: document.querySelectorAll(".figures > div").length,
    tables: document.querySelectorAll("figure.table table").length,
    charts,
  });
  document.body.append(probe);
})();
