"use strict";
// Values under the pointer or the arrow keys, and series that can be switched off. Everything is read from the table
// beneath each chart: data-x of a row and data-y of a cell are places in the drawing.
(() => {
  const drawn = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  const liven = (chart) => {
    const svg = chart.querySelector(".plot > svg");
    const tip = chart.querySelector(".tip");
    const cursor = svg.querySelector(".cursor");
    const plot = chart.querySelector(".plot");
    const names = [...chart.querySelectorAll(".data thead th")].slice(1).map((cell) => cell.textContent);
    const rows = [...chart.querySelectorAll(".data tbody tr")].filter((row) => row.dataset.x).map((row) => ({
      x: Number(row.dataset.x),
      name: row.cells[0].textContent,
      cells: [...row.cells].slice(1).map((cell) => cell.dataset.y
        ? { y: Number(cell.dataset.y), text: cell.textContent } : null),
    }));
    const groups = names.map((_, series) => svg.querySelector(`.series[data-series="${series}"]`));
    const colours = groups.map((group) => group.getAttribute("class").split(" ").pop());
    const off = new Set();
    let at = -1;

    // The row itself, or for a series without a value there the nearest one that has it, if it is near.
    const near = (index, series) => {
      const span = svg.viewBox.baseVal.width / 40;
      for (let away = 0; away < rows.length; ++away) {
        for (const row of [rows[index - away], rows[index + away]]) {
          if (row && row.cells[series] && Math.abs(row.x - rows[index].x) <= span) return row;
        }
        const left = rows[index - away], right = rows[index + away];
        if ((!left || rows[index].x - left.x > span) && (!right || right.x - rows[index].x > span)) return null;
      }
      return null;
    };

    const hide = () => {
      at = -1;
      tip.hidden = true;
      cursor.replaceChildren();
    };

    const show = (index) => {
      at = index;
      const row = rows[index];
      cursor.replaceChildren(drawn("path", { d: `M${row.x} ${svg.dataset.top}V${svg.dataset.bottom}` }));
      const found = [];
      names.forEach((name, series) => {
        const source = off.has(series) ? null : near(index, series);
        if (!source) return;
        const cell = source.cells[series];
        const colour = colours[series];
        found.push({ name, colour, y: cell.y, text: cell.text });
        if (!groups[series].classList.contains("bars")) {
          cursor.append(drawn("circle", { class: colour, cx: source.x, cy: cell.y, r: 4 }));
        }
      });
      found.sort((a, b) => a.y - b.y);
      const head = document.createElement("b");
      head.textContent = row.name;
      tip.replaceChildren(head, ...found.map((entry) => {
        const line = document.createElement("div");
        const key = document.createElement("i");
        key.className = entry.colour;
        const name = document.createElement("span");
        name.textContent = entry.name;
        const value = document.createElement("span");
        value.textContent = entry.text;
        line.append(key, name, value);
        return line;
      }));
      tip.hidden = false;
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      const x = plot.offsetLeft + row.x * scale - plot.scrollLeft;
      const fits = x + 14 + tip.offsetWidth <= chart.clientWidth;
      const left = fits ? x + 14 : Math.max(0, x - 14 - tip.offsetWidth);
      tip.style.transform = `translate(${left}px, ${plot.offsetTop + Number(svg.dataset.top) * scale}px)`;
    };

    const follow = (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      let best = 0;
      rows.forEach((row, index) => {
        if (Math.abs(row.x - x) < Math.abs(rows[best].x - x)) best = index;
      });
      show(best);
    };

    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const last = rows.length - 1;
      const next = {
        ArrowRight: Math.min(at + 1, last), ArrowLeft: at < 0 ? last : Math.max(at - 1, 0), Home: 0, End: last,
      }[event.key];
      if (event.key === "Escape") hide();
      if (next === undefined) return;
      event.preventDefault();
      show(next);
    });

    for (const button of chart.querySelectorAll(".legend button")) {
      const series = Number(button.dataset.series);
      const light = (lit) => {
        plot.classList.toggle("lighting", lit && !off.has(series));
        groups[series].classList.toggle("lit", lit);
      };
      button.addEventListener("pointerenter", () => light(true));
      button.addEventListener("pointerleave", () => light(false));
      button.addEventListener("focus", () => light(true));
      button.addEventListener("blur", () => light(false));
      button.addEventListener("click", () => {
        if (!off.delete(series)) off.add(series);
        button.setAttribute("aria-pressed", String(!off.has(series)));
        groups[series].classList.toggle("off", off.has(series));
        light(true);
      });
    }
  };

  const charts = [...document.querySelectorAll(".chart")].filter((chart) => chart.querySelector(".plot"));
  charts.forEach(liven);
  document.documentElement.dataset.live = String(charts.length);
})();
