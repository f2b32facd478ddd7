"use strict";
// The live page of one manager. Reads /v1/status, /v1/history and /v1/times every two seconds, and draws. Nothing that the
// server sends becomes markup: text is set as text.
(() => {
  const PERIOD = 2000, KEPT = 900;
  const TIERS = { G1: "Device", G2: "Host", G3: "Disk", G4: "Remote" };
  const COLOURS = { G1: "c0", G2: "c1", G3: "c2", G4: "c3" };
  const SVG = "http://www.w3.org/2000/svg";
  const $ = (id) => document.getElementById(id);

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== undefined && child !== null));
    return element;
  };
  const draw = (tag, attributes = {}, ...children) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  // Numbers for people.
  const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
  const scaled = (value, units, step) => {
    let at = 0;
    while (Math.abs(value) >= step && at < units.length - 1) { value /= step; at += 1; }
    return `${at === 0 && Number.isInteger(value) ? value : digits(value)}${units[at] ? ` ${units[at]}` : ""}`;
  };
  const bytes = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024);
  const rate = (value) => `${scaled(value, ["B", "KB", "MB", "GB", "TB"], 1000)}/s`;
  const count = (value) => (value < 1e6 ? Math.round(value).toLocaleString("en-US") : scaled(value, ["", "K", "M", "G", "T"], 1000));
  const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
  const seconds = (value) => {
    if (value === 0) return "0 s";
    if (value < 1e-3) return `${digits(value * 1e6)} µs`;
    if (value < 1) return `${digits(value * 1e3)} ms`;
    return `${digits(value)} s`;
  };
  const ago = (value) => {
    if (value < 90) return `${Math.round(value)} s`;
    if (value < 5400) return `${(value / 60).toFixed(value < 600 && Math.round(value) % 60 !== 0 ? 1 : 0)} min`;
    if (value < 129600) return `${Math.round(value / 3600)} h`;
    return `${Math.round(value / 86400)} d`;
  };

  // --- the history: rows by column name ---
  let columns = [], rows = [];
  const column = (name) => columns.indexOf(name);
  const take = (history) => {
    if (history.columns.join() !== columns.join()) { columns = history.columns; rows = []; }
    const last = rows.length ? rows[rows.length - 1][0] : -1;
    rows.push(...history.rows.filter((row) => row[0] > last));
    if (rows.length > KEPT) rows = rows.slice(-KEPT);
  };
  // Points of what a counter grew by a second.
  const rates = (name) => {
    const at = column(name);
    return at < 0 ? [] : rows.slice(1).map((row, i) => [row[0], Math.max(0, row[at] - rows[i][at]) / Math.max(row[0] - rows[i][0], 1e-9)]);
  };
  const values = (name) => {
    const at = column(name);
    return at < 0 ? [] : rows.map((row) => [row[0], row[at]]);
  };
  // The growth of counters over the last `window` samples, at every sample.
  const WINDOW = 15;
  const grown = (names) => {
    const at = names.map(column).filter((index) => index >= 0);
    return rows.slice(1).map((row, i) => {
      const before = rows[Math.max(0, i + 1 - WINDOW)];
      return at.reduce((sum, index) => sum + Math.max(0, row[index] - before[index]), 0);
    });
  };
  const hitShares = () => {
    const byTokens = rows.length > 0 && rows[rows.length - 1][column("tokens.asked")] > 0;
    const names = byTokens ? { G1: "tokens.device", G2: "tokens.host", G3: "tokens.disk" }
      : Object.fromEntries(Object.keys(TIERS).filter((tier) => column(`${tier}.hits`) >= 0).map((tier) => [tier, `${tier}.hits`]));
    const all = byTokens ? grown(["tokens.asked"]) : grown([...Object.values(names), "misses"]);
    return Object.entries(names).map(([tier, name]) => ({
      tier, points: grown([name]).map((part, i) => [rows[i + 1][0], all[i] > 0 ? part / all[i] : null]),
    }));
  };

  // --- charts ---
  const nice = (most) => {
    if (!(most > 0)) return 1;
    const power = 10 ** Math.floor(Math.log10(most));
    return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= most * 0.999);
  };
  // `series`: [{name, colour, points: [[x, y or null]], limit?}] with `stacked`, each on top of the one before.
  const chart = (place, { title, note, series, format, most, stacked }) => {
    const shown = series.filter((one) => one.points.length > 1);
    const box = $(place);
    const W = 560, H = 210, left = 78, right = 12, top = 12, bottom = 24;
    const caption = make("figcaption", {}, make("h3", {}, title), make("p", {}, note));
    if (!shown.length) {
      box.replaceChildren(caption, make("p", { class: "empty" }, "Waiting for the second sample."));
      return;
    }
    const xs = shown[0].points.map((point) => point[0]);
    const from = Math.max(xs[0], xs[xs.length - 1] - 1800), to = xs[xs.length - 1];
    const sums = xs.map(() => 0);
    const drawn = shown.map((one) => {
      const points = one.points.map(([x, y], i) => {
        if (y === null || y === undefined) return [x, null, null];
        const base = stacked && !one.limit ? sums[i] : 0;
        if (stacked && !one.limit) sums[i] += y;
        return [x, base + y, base];
      }).filter(([x]) => x >= from);
      return { ...one, drawn: points };
    });
    const peak = most ?? nice(Math.max(...drawn.flatMap((one) => one.drawn.map((point) => point[1] ?? 0)), 0));
    const X = (x) => left + (W - left - right) * (to > from ? (x - from) / (to - from) : 1);
    const Y = (y) => H - bottom - (H - top - bottom) * Math.min(y / peak, 1.02);
    const svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: "0" }, draw("title", {}, title));
    for (let i = 0; i <= 4; i += 1) {
      const value = (peak * i) / 4;
      svg.append(draw("path", { class: "grid", d: `M${left} ${Y(value)}H${W - right}` }),
        draw("text", { class: "end tick", x: left - 8, y: Y(value) + 4 }, format(value)));
    }
    const span = to - from;
    for (let i = 0; i <= 4; i += 1) {
      const at = from + (span * i) / 4;
      const label = i === 4 ? "now" : `-${ago(to - at)}`;
      svg.append(draw("text", { class: i === 4 ? "end tick" : i === 0 ? "tick" : "middle tick", x: X(at), y: H - 6 }, label));
    }
    drawn.forEach((one, index) => {
      const group = draw("g", { class: `series ${one.colour}${one.limit ? " limit" : stacked ? " area" : " line"}`, "data-series": index });
      let line = "", run = [];
      const fill = () => {
        if (stacked && !one.limit && run.length > 1) {
          const up = run.map(([x, y]) => `${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join("L");
          const down = run.slice().reverse().map(([x, , base]) => `${X(x).toFixed(1)} ${Y(base).toFixed(1)}`).join("L");
          group.append(draw("path", { class: "fill", d: `M${up}L${down}Z` }));
        }
        run = [];
      };
      for (const point of one.drawn) {
        if (point[1] === null) { fill(); continue; }
        line += `${run.length ? "L" : "M"}${X(point[0]).toFixed(1)} ${Y(point[1]).toFixed(1)}`;
        run.push(point);
      }
      fill();
      group.append(draw("path", { class: "stroke", d: line || "M0 0" }));
      svg.append(group);
    });
    const cursor = draw("g", { class: "cursor" });
    svg.append(cursor);
    const tip = make("div", { class: "tip", hidden: true });
    const legend = make("div", { class: "legend" }, ...shown.filter((one) => !one.limit).map((one) =>
      make("span", { class: one.colour }, make("i"), one.name)));
    const plot = make("div", { class: "plot" }, svg);
    box.replaceChildren(caption, legend, plot, tip);

    const show = (clientX) => {
      const area = svg.getBoundingClientRect();
      const x = from + ((clientX - area.left) / area.width * W - left) / (W - left - right) * span;
      let at = 0;
      drawn[0].drawn.forEach((point, i) => { if (Math.abs(point[0] - x) < Math.abs(drawn[0].drawn[at][0] - x)) at = i; });
      const when = drawn[0].drawn[at][0];
      cursor.replaceChildren(draw("path", { d: `M${X(when)} ${top}V${H - bottom}` }));
      tip.replaceChildren(make("b", {}, to - when < 1 ? "now" : `${ago(to - when)} ago`), ...drawn.filter((one) => !one.limit).map((one) => {
        const point = one.points.find((candidate) => candidate[0] === when);
        return make("div", { class: one.colour }, make("i"), make("span", {}, one.name),
          make("span", {}, point && point[1] !== null ? format(point[1]) : "none"));
      }));
      tip.hidden = false;
      const inside = box.getBoundingClientRect();
      const wanted = clientX - inside.left + 14;
      tip.style.left = `${Math.max(4, Math.min(wanted, inside.width - tip.offsetWidth - 6))}px`;
      tip.style.top = `${plot.offsetTop + 8}px`;
      pointer[place] = clientX;
    };
    const hide = () => { tip.hidden = true; cursor.replaceChildren(); delete pointer[place]; };
    svg.addEventListener("pointermove", (event) => show(event.clientX));
    svg.addEventListener("pointerdown", (event) => show(event.clientX));
    svg.addEventListener("pointerleave", hide);
    if (pointer[place] !== undefined) show(pointer[place]);
  };
  const pointer = {};  // where the pointer is over a chart, so that its values stay while the chart is drawn again

  // --- tables ---
  // `head`: names of the columns; those in `texts` are aligned to the left.
  const table = (place, title, note, head, lines, { texts = [0], empty }) => {
    const body = lines.map((line) => make("tr", {}, ...line.map((cell, i) =>
      make(i === 0 ? "th" : "td", { class: texts.includes(i) && i > 0 ? "words" : undefined, scope: i === 0 ? "row" : undefined },
        ...(Array.isArray(cell) ? cell : [cell])))));
    $(place).replaceChildren(make("h3", {}, title), ...(note ? [make("p", {}, note)] : []),
      lines.length === 0 ? make("p", {}, empty)
        : make("div", { class: "scroll" }, make("table", {},
          make("thead", {}, make("tr", {}, ...head.map((name, i) => make("th", { class: texts.includes(i) ? "words" : undefined, scope: "col" }, name)))),
          make("tbody", {}, ...body))));
  };

  const figure = (label, value, note) => make("div", {}, make("dt", {}, label), make("dd", {}, value), make("dd", { class: "note" }, note));

  const OPERATIONS = {
    cairn_load_seconds: () => "Load, from request to blocks",
    cairn_copy_seconds: (labels) => `Copy ${labels.link}`,
  };

  const showAll = (status, times) => {
    const shares = hitShares();
    const lastShare = (tier) => shares.find((one) => one.tier === tier)?.points.at(-1)?.[1] ?? null;
    const known = shares.map((one) => lastShare(one.tier)).filter((value) => value !== null);
    const loads = times.operations.find((one) => one.name === "cairn_load_seconds");
    const latest = (name) => rates(name).at(-1)?.[1] ?? 0;
    const moved = status.links.map((link) => latest(`${link.from}-${link.to}.bytes`)).reduce((a, b) => a + b, 0);
    const copied = status.links.reduce((sum, link) => sum + link.bytes, 0);
    const wrong = status.links.reduce((sum, link) => sum + link.mismatched, 0);
    $("figures").style.setProperty("--columns", "5");
    $("figures").replaceChildren(
      figure("Hit ratio", known.length ? percent(known.reduce((a, b) => a + b, 0)) : "–", known.length ? "of what was asked for, last 30 s" : "nothing was asked for in the last 30 s"),
      figure("Loads", `${digits(latest("loads"))}/s`, `${count(status.onboard.finished)} since the start, ${status.onboard.loads} in flight`),
      figure("Load time, p99", loads && loads.count ? seconds(loads.p99) : "–", loads && loads.count ? `half of them within ${seconds(loads.p50)}` : "no load yet"),
      figure("Moving", rate(moved), `${bytes(copied)} since the start, ${count(wrong)} wrong blocks refused`),
      figure("Incidents", count(status.incident_count), status.incident_count ? "listed below" : "none since the start"));

    $("tiers").replaceChildren(...status.tiers.map((tier) => {
      const used = tier.blocks - tier.free;
      const share = tier.blocks ? used / tier.blocks : 0;
      const busy = make("i"), idle = make("i", { class: "idle" });
      busy.style.width = `${tier.blocks ? 100 * (tier.in_use / tier.blocks) : 0}%`;
      idle.style.width = `${tier.blocks ? 100 * (Math.max(0, used - tier.in_use) / tier.blocks) : 0}%`;
      const out = [tier.reading, tier.writing].filter((health) => !health.is_up).map((health) => health.reason);
      return make("div", { class: `tier ${COLOURS[tier.level]}` },
        make("h3", {}, make("span", {}, `${TIERS[tier.level]} (${tier.level})`), make("span", {}, tier.blocks ? percent(share) : "")),
        make("div", { class: "bar", role: "img", "aria-label": `${percent(share)} used` }, busy, idle),
        make("p", {}, tier.blocks
          ? `${bytes(used * tier.block_bytes)} of ${bytes(tier.blocks * tier.block_bytes)}: ${count(tier.in_use)} blocks in use, ${count(used - tier.in_use)} kept for later`
          : "managed by the engine"),
        make("p", {}, `${tier.place}${tier.path ? `, ${tier.path}` : ""}`),
        ...(out.length ? [make("p", { class: "out" }, `out of use: ${out[0]}`)] : []));
    }));

    chart("hits", {
      title: "Hit ratio by tier", note: "Share of what requests asked for that a tier had, over 30 seconds.",
      series: shares.map((one) => ({ name: TIERS[one.tier], colour: COLOURS[one.tier], points: one.points })),
      format: percent, most: 1, stacked: true,
    });
    const links = status.links.map((link) => {
      const name = `${link.from}-${link.to}`;
      return { name, limit: link.bytes > 0 ? link.bytes_per_second : 0, points: rates(`${name}.bytes`) };
    });
    const busiest = Math.max(0, ...links.flatMap((link) => link.points.map((point) => point[1])));
    chart("throughput", {
      title: "Throughput by direction", note: "Bytes copied a second. The limit is the speed that was measured while copying; dashed if it is near.",
      series: links.flatMap(({ name, limit, points }, i) => {
        const line = { name: limit > 0 ? `${name} (limit ${rate(limit)})` : name, colour: `c${i % 8}`, points };
        // A limit far above what moves would flatten everything else.
        return limit > 0 && limit < 4 * busiest ? [line, { name, colour: `c${i % 8}`, limit: true, points: points.map(([x]) => [x, limit]) }] : [line];
      }),
      format: rate,
    });
    chart("queues", {
      title: "Queues", note: "Blocks that wait to be copied to a lower tier, and loads in flight.",
      series: [...status.offload.map((one, i) => ({ name: `waiting ${one.from}-${one.to}`, colour: `c${i}`, points: values(`${one.from}-${one.to}.pending`) })),
        { name: "loads in flight", colour: "c3", points: values("loads_in_flight") }],
      format: count,
    });
    const spent = rates("load_seconds"), done = rates("loads");
    chart("loads", {
      title: "Load time", note: "Mean time from the request of a load to its blocks.",
      series: [{ name: "load", colour: "c0", points: spent.map(([x, y], i) => [x, done[i][1] > 0 ? y / done[i][1] : null]) }],
      format: seconds,
    });

    table("incidents", "Incidents", "", ["When", "What happened, and what to do", "Tier"],
      status.incidents.slice().reverse().slice(0, 12).map((one) => [
        `${ago(one.seconds_ago)} ago`,
        [make("span", { class: one.kind === "tier back" ? "kind fine" : "kind" }, one.kind), `: ${one.text} `, make("span", { class: "advice" }, one.advice)],
        one.level]),
      { texts: [0, 1], empty: "None since the start." });
    table("links", "Links", "Blocks that were copied between tiers, and what became of the others.",
      ["Link", "Now", "Of the limit", "Blocks", "Failed", "Wrong", "State"],
      status.links.map((link) => {
        const name = `${link.from}-${link.to}`;
        const now = latest(`${name}.bytes`);
        return [name, rate(now), link.bytes_per_second > 0 ? percent(now / link.bytes_per_second) : "–", count(link.done), count(link.failed + link.expired), count(link.mismatched), link.is_paused ? "paused" : "on"];
      }), { empty: "There is one tier, and nothing to copy." });
    table("operations", "Slowest operations", "Times since the start, the slowest first.", ["Operation", "Count", "p50", "p90", "p99"],
      times.operations.filter((one) => one.count > 0 && OPERATIONS[one.name])
        .sort((a, b) => b.p99 - a.p99)
        .map((one) => [OPERATIONS[one.name](one.labels), count(one.count), seconds(one.p50), seconds(one.p90), seconds(one.p99)]),
      { empty: "Nothing was moved yet." });
    const tenants = status.tokens?.tenants ?? [];
    $("tenants").hidden = tenants.length === 0;
    table("tenants", "Tenants", "Prompts in tokens since the start.", ["Tenant", "Requests", "Tokens", "Hit ratio", "Saved"],
      tenants.map((one) => [one.name || "(default)", count(one.requests), count(one.asked), percent(one.hit_rate), count(one.saved)]),
      { empty: "None." });
    $("lead").textContent = `Worker ${status.worker_id}${status.dp_rank ? `, rank ${status.dp_rank}` : ""}, up for ${ago(status.uptime_seconds)}.`;
  };

  const showPrefixes = ({ prefixes, is_cut: isCut }) => {
    table("prefixes", "Shared prefixes", `Prefixes that cached sequences have in common${isCut ? ", of the blocks that were looked at" : ""}.`,
      ["Key", "Tokens", "Sequences", "Tokens saved"],
      prefixes.map((one) => [make("code", { title: one.key }, `${one.key.slice(0, 12)}…`), count(one.tokens), count(one.sequences), count(one.tokens * (one.sequences - 1))]),
      { empty: "No two cached sequences begin alike." });
  };

  const get = async (path) => {
    const response = await fetch(path, { cache: "no-store" });
    if (!response.ok && response.status !== 503) throw new Error(`${path}: ${response.status}`);
    return response.json();
  };
  const say = (text, look) => { $("state").textContent = text; $("state").className = `state ${look}`; };
  let updates = 0;
  const update = async () => {
    try {
      const since = rows.length ? `?since=${rows[rows.length - 1][0]}` : "";
      const [status, history, times, ready] = await Promise.all(
        [get("v1/status"), get(`v1/history${since}`), get("v1/times"), get("readyz")]);
      if (rows.length && status.uptime_seconds < rows[rows.length - 1][0]) rows = [];  // another process
      take(history);
      showAll(status, times);
      say(ready.ready ? "ready" : ready.reasons[0], ready.ready ? "good" : "bad");
      if (updates % 5 === 0) {
        const shared = await get("v1/prefixes?limit=8");
        if (shared.prefixes) showPrefixes(shared);  // else they are being looked for
      }
      updates += 1;
      document.body.dataset.updates = updates;
    } catch (error) {
      say("no connection; trying again", "bad");
    }
    setTimeout(update, document.hidden ? 5 * PERIOD : PERIOD);
  };
  update();
})();
