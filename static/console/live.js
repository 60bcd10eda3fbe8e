// Live regions: a page's part asks for itself every few seconds. With a pause, a sign that says how old it is, and lists
// whose rows never change places while somebody reads them.
(() => {
  "use strict";
  const STALE_SECONDS = 10;
  const POINTER_SECONDS = 4;
  const { readClock, span, runTimes, say, told } = window.rmhub;
  const region = document.querySelector("[data-live-region]");
  const sign = document.getElementById("live-sign");
  let paused = false;
  let fresh = Date.now();
  let pointed = 0;

  const dialogs = () => document.querySelector("dialog[open]");

  function showSign() {
    if (!sign) return;
    const age = (Date.now() - fresh) / 1000;
    const old = age > STALE_SECONDS ? " · " + span(age) : ""; // what stands still on purpose is not silently old either
    let state = "live", text = told("live");
    if (paused) [state, text] = ["paused", told("paused", { time: span(age) })];
    else if (dialogs()) [state, text] = ["held", told("held_dialog") + old];
    else if (held()) [state, text] = ["held", told(pointing() ? "held_pointing" : "held_reading") + old];
    else if (age > STALE_SECONDS) [state, text] = ["stale", told("stale", { time: span(age) })];
    if (sign.dataset.state !== state) sign.dataset.state = state;
    const place = document.getElementById("live-text");
    if (place.textContent !== text) place.textContent = text;
  }

  const pointing = () => "hold" in region.dataset && Date.now() - pointed < POINTER_SECONDS * 1000;

  // Rows must not change places under the pointer, nor lose what is being selected or read.
  function held() {
    if (!region) return false;
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && region.contains(chosen.anchorNode)) return true;
    return Boolean(region.querySelector("details[open]")) || pointing();
  }

  const rowsOf = (root) => Array.from(root.querySelectorAll("[data-list] > tbody > tr[id]"));

  // A list that stands still (`data-still`): its rows are renewed where they are, and new ones are counted. Returns
  // whether the answer may be taken as it is.
  function standStill(answer) {
    const old = rowsOf(region);
    if (!old.length) return true;
    const parsed = new DOMParser().parseFromString(answer, "text/html");
    const now = rowsOf(parsed);
    if (now.length === old.length && now.every((row, index) => row.id === old[index].id)) return true;
    const byId = new Map(now.map((row) => [row.id, row]));
    const focused = document.activeElement && region.contains(document.activeElement) ? document.activeElement.id : "";
    const ticked = tickedValues();
    for (const row of old) {
      const renewed = byId.get(row.id);
      if (renewed) row.replaceWith(document.importNode(renewed, true));
    }
    tickAgain(ticked);
    if (focused) { const again = document.getElementById(focused); if (again) again.focus(); }
    for (const counter of parsed.querySelectorAll("[hx-swap-oob]")) {
      const place = document.getElementById(counter.id);
      if (place) { counter.removeAttribute("hx-swap-oob"); place.replaceWith(document.importNode(counter, true)); }
    }
    const known = new Set(old.map((row) => row.id));
    showNew(now.filter((row) => !known.has(row.id)).length, now.length);
    runTimes();
    return false;
  }

  function showNew(count, page) {
    if (!count) return;
    let link = document.getElementById("new-rows");
    if (!link) {
      link = document.createElement("a");
      link.id = "new-rows";
      link.className = "btn new-rows";
      link.dataset.key = ".";
      link.dataset.testid = "new-rows";
      link.href = location.href;
      region.before(link);
    }
    const text = told(count >= page ? "new_more" : "new", { count: Math.min(count, page) });
    if (link.textContent !== text) { link.textContent = text; say(text); }
  }

  const tickedValues = () => new Set(
    Array.from(region.querySelectorAll("input[name=ids]:checked"), (box) => box.value));

  function tickAgain(values) {
    if (!values.size) return;
    for (const box of region.querySelectorAll("input[name=ids]")) if (values.has(box.value)) box.checked = true;
    document.dispatchEvent(new CustomEvent("rmhub:selected"));
  }

  if (region && sign) {
    sign.hidden = false;
    region.addEventListener("pointermove", () => { pointed = Date.now(); });
    const button = document.getElementById("live-pause");
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(paused));
      button.querySelector("span").textContent = told(paused ? "go_on" : "pause");
      showSign();
    });
    let said = "", ticked = new Set();
    document.body.addEventListener("htmx:configRequest", (event) => {
      if (event.detail.elt === region && region.dataset.digest) event.detail.headers["X-Fragment"] = region.dataset.digest;
    });
    document.body.addEventListener("htmx:beforeRequest", (event) => {
      const also = "liveAlso" in event.detail.elt.dataset;
      if (also && (paused || document.hidden || event.detail.elt.contains(document.activeElement))) event.preventDefault();
      if (event.detail.elt !== region) return;
      if (paused || document.hidden || held() || dialogs()) event.preventDefault();
      const line = region.querySelector("[data-announce]");
      said = line ? line.textContent : "";
    });
    document.body.addEventListener("htmx:beforeSwap", (event) => {
      const { target, xhr } = event.detail;
      if (target !== region) return;
      if (xhr.status === 204) { fresh = Date.now(); showSign(); return; } // nothing has changed
      if (xhr.status !== 200) return;
      // The answer may come when the pointer is back over the rows.
      if (paused || held()) { event.detail.shouldSwap = false; return; }
      ticked = tickedValues();
      region.dataset.digest = xhr.getResponseHeader("X-Fragment") || "";
      if ("still" in region.dataset && !standStill(event.detail.serverResponse)) {
        event.detail.shouldSwap = false;
        fresh = Date.now();
        showSign();
      }
    });
    document.body.addEventListener("htmx:afterSwap", (event) => {
      if (event.detail.target !== region) return;
      fresh = Date.now();
      readClock(region);
      tickAgain(ticked);
      const line = region.querySelector("[data-announce]");
      if (line && said !== line.textContent) say(line.textContent);
      runTimes();
      showSign();
    });
  }
  // What has ended meanwhile, on whatever page one is: said once in a tab.
  const toasts = document.getElementById("toasts");
  const TOLD = "rmhub.told";

  async function askForToasts() {
    if (document.hidden) return;
    const answer = await fetch(toasts.dataset.href, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (!answer || !answer.ok || !(answer.headers.get("Content-Type") || "").includes("json")) return;
    const told = new Set(JSON.parse(sessionStorage.getItem(TOLD) || "[]"));
    for (const one of (await answer.json()).toasts) {
      if (told.has(one.id)) continue;
      told.add(one.id);
      if (one.href !== location.pathname) showToast(one);
    }
    sessionStorage.setItem(TOLD, JSON.stringify([...told].slice(-200)));
  }

  function showToast(one) {
    const toast = document.createElement("div"), link = document.createElement("a"), close = document.createElement("button");
    toast.className = "toast-note";
    toast.dataset.testid = "toast";
    link.href = one.href;
    link.textContent = one.text;
    close.type = "button";
    close.className = "btn btn-sm btn-ghost";
    close.textContent = told("close");
    close.addEventListener("click", () => toast.remove());
    toast.append(link, close);
    toasts.append(toast);
  }

  if (toasts) setInterval(() => { askForToasts().catch(() => {}); }, 5000);
  setInterval(() => { if (!paused) runTimes(); showSign(); }, 1000);
})();
