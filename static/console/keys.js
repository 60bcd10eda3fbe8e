// Keys, selection of rows, and the palette. messaging/overview/pages.py lists the keys for people.
(() => {
  "use strict";
  const PLACES = { d: "/", p: "/pairs/", m: "/messages/", i: "/in-doubt/", n: "/incidents/", r: "/reports/" };
  const KEPT = "rmhub.list";
  const { say, told } = window.rmhub;
  const palette = document.getElementById("palette");
  let prefix = 0; // when g was pressed
  let cursor = ""; // id of the row that had the focus: a refresh may have replaced it
  let anchor = ""; // value of the box that was ticked last

  const rows = () => Array.from(document.querySelectorAll("main [data-list] > tbody > tr, main ul[data-list] > li"));
  const opener = (row) => row.querySelector("a[data-open]") || row.querySelector("a[href]");
  const box = (row) => row.querySelector("input[name=ids]");
  // What stands in a menu that is closed can be done all the same.
  const usable = (one) => (one.getClientRects().length || one.closest("details.menu")) && one.getAttribute("aria-disabled") !== "true" && !one.disabled;

  function current() {
    const all = rows();
    return all.find((row) => row.contains(document.activeElement)) || all.find((row) => row.id && row.id === cursor) || null;
  }

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(current());
    const row = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
    const link = opener(row);
    if (!link) return;
    cursor = row.id;
    link.focus();
    row.scrollIntoView({ block: "nearest" });
  }

  // Whatever carries data-key: the one in the row that has the focus goes before those of the page.
  function press(key) {
    const row = current();
    const wanted = "[data-key='" + CSS.escape(key) + "']";
    const found = [...(row ? row.querySelectorAll(wanted) : []), ...document.querySelectorAll(wanted)].find(usable);
    if (found) found.click();
    return Boolean(found);
  }

  // ---- selection ----
  function select(row, range) {
    const one = row && box(row);
    if (!one) return;
    if (range && anchor) {
      const boxes = rows().map(box).filter(Boolean);
      const [from, to] = [boxes.findIndex((each) => each.value === anchor), boxes.indexOf(one)].sort((a, b) => a - b);
      if (from >= 0) for (const each of boxes.slice(from, to + 1)) each.checked = true;
    } else {
      one.checked = !one.checked;
    }
    anchor = one.value;
    count();
  }

  function count() {
    const number = document.querySelectorAll("main input[name=ids]:checked").length;
    for (const place of document.querySelectorAll("[data-selected-count]")) {
      const text = number ? " (" + number + ")" : "";
      if (place.textContent !== text) place.textContent = text;
    }
  }

  document.addEventListener("rmhub:selected", count);
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) {
      for (const row of rows()) if (box(row)) box(row).checked = event.target.checked;
    } else if (event.target.matches("input[name=ids]")) {
      anchor = event.target.value;
    }
    count();
  });
  function offerAll() {
    for (const one of document.querySelectorAll("[data-select-all]")) one.hidden = false;
  }
  offerAll();
  document.body.addEventListener("htmx:afterSwap", () => { offerAll(); count(); });

  // ---- the list one came from ----
  const path = (link) => new URL(link, location.href).pathname;

  function keepList() {
    const links = rows().map(opener).filter(Boolean).map((link) => path(link.href));
    const kept = listKept();
    if (!links.length || (kept && kept.links.includes(location.pathname))) return;
    sessionStorage.setItem(KEPT, JSON.stringify({ from: location.href, links: [...new Set(links)] }));
  }

  function listKept() {
    try { return JSON.parse(sessionStorage.getItem(KEPT)); } catch { return null; }
  }

  function neighbour(step) {
    const kept = listKept();
    const at = kept ? kept.links.indexOf(location.pathname) : -1;
    if (at < 0) { say(told("no_list")); return; }
    const next = kept.links[at + step];
    if (next) location.assign(next);
    else say(told(step > 0 ? "last" : "first"));
  }

  try {
    keepList();
    window.addEventListener("pagehide", keepList);
  } catch { /* storage is switched off: [ and ] say so */ }

  // ---- palette ----
  const ways = () => Array.from(palette.querySelectorAll(".way")).filter(usable);
  let asked = 0;

  function here(text) {
    const list = document.getElementById("palette-here");
    list.replaceChildren();
    const seen = new Set();
    for (const one of document.querySelectorAll("main [data-testid^='verb-'], main .page-actions a, main .page-actions button")) {
      const name = one.textContent.trim().replace(/\s+/g, " ");
      if (!usable(one) || seen.has(name) || !name.toLowerCase().includes(text.toLowerCase())) continue;
      seen.add(name);
      const item = document.createElement("li"), button = document.createElement("button"), kind = document.createElement("span");
      button.type = "button";
      button.className = "way";
      kind.className = "text-faint";
      kind.textContent = told("here");
      button.append(kind, " " + name);
      button.addEventListener("click", () => { palette.close(); one.click(); });
      item.append(button);
      list.append(item);
    }
    palette.classList.toggle("found-here", seen.size > 0);
  }

  function look(text) {
    const number = ++asked;
    here(text);
    setTimeout(() => {
      if (number !== asked) return;
      window.htmx.ajax("GET", palette.dataset.href + "?q=" + encodeURIComponent(text), { target: "#palette-results", swap: "innerHTML" });
    }, 120);
  }

  function openPalette() {
    if (!palette || !window.htmx) return;
    const field = document.getElementById("palette-q");
    if (!palette.open) palette.showModal();
    field.value = "";
    look("");
    field.focus();
  }

  if (palette) {
    palette.addEventListener("input", (event) => look(event.target.value.trim()));
    palette.addEventListener("submit", (event) => {
      const first = ways()[0];
      if (first) { event.preventDefault(); first.click(); }
    });
    palette.addEventListener("keydown", (event) => {
      // In a search field that key empties the field first.
      if (event.key === "Escape") { event.preventDefault(); palette.close(); return; }
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      const all = ways(), at = all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      if (at < 0) document.getElementById("palette-q").focus();
      else if (all[at]) all[at].focus();
    });
  }

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
    if (document.body.dataset.shortcuts === "off" || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]")) return;
    const key = event.key;
    if (Date.now() - prefix < 1500) {
      prefix = 0;
      const link = PLACES[key] && document.querySelector("a.nav-entry[href='" + PLACES[key] + "']");
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    let done = true;
    if (key === "g") prefix = Date.now();
    else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === "x") select(current(), false);
    else if (key === "X") select(current(), true);
    else if (key === "[") neighbour(-1);
    else if (key === "]") neighbour(1);
    else if (key === "/") { const search = document.getElementById("search"); search.focus(); search.select(); }
    else if (key.length === 1) done = press(key);
    else done = false;
    if (done) event.preventDefault();
  });
})();
