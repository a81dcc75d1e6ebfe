/* A person at the page of the service, by keyboard: names classes, gives images, labels 30 of them and sees the accuracy rise, corrects
 * one, finds it among the mix-ups, and undoes the correction. The page fits 390 and 1400 pixels, has no violation of axe-core in light and dark,
 * and no error in the console. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";
import zlib from "node:zlib";

const [program, work] = process.argv.slice(2);
const require = createRequire(import.meta.url);
const find = name => require.resolve(name, {paths: [process.env.SFP_NODE_MODULES || ".", "."]});
const { chromium } = require(find("playwright-core"));
const axe = fs.readFileSync(find("axe-core"), "utf8");
const docs = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../../docs");
const say = text => console.log("page: " + text);

/* ------------------------------------------------------------------- images */

function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
function png(size, pixel) {
  const raw = Buffer.alloc(size * (3 * size + 1));
  for (let y = 0; y < size; y++)
    for (let x = 0; x < size; x++) raw.set(pixel(x, y).map(v => Math.max(0, Math.min(255, Math.round(v)))), y * (3 * size + 1) + 1 + 3 * x);
  const chunk = (name, data) => {
    const body = Buffer.concat([Buffer.from(name), data]), out = Buffer.alloc(8 + body.length);
    out.writeUInt32BE(data.length, 0);
    body.copy(out, 4);
    out.writeUInt32BE(crc(body), 4 + body.length);
    return out;
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(size, 0);
  head.writeUInt32BE(size, 4);
  head.set([8, 2], 8);
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), chunk("IHDR", head), chunk("IDAT", zlib.deflateSync(raw)), chunk("IEND", Buffer.alloc(0))]);
}
function crc(bytes) {
  let c = ~0;
  for (const b of bytes) {
    c ^= b;
    for (let k = 0; k < 8; k++) c = (c >>> 1) ^ (0xedb88320 & -(c & 1));
  }
  return ~c >>> 0;
}
const shapes = {
  disc: (x, y) => x * x + y * y < 300,
  cross: (x, y) => Math.abs(x) < 5 !== Math.abs(y) < 5 && Math.abs(x) < 20 && Math.abs(y) < 20,
  "stripes <b>": (x, y) => ((x + 100) >> 2) % 2 === 0 && Math.abs(y) < 22, // a name that must stay text
};
const names = Object.keys(shapes);
/* A dark shape somewhere on a light background. */
function draw(name, seed) {
  const r = random(seed), cx = 24 + 16 * r(), cy = 24 + 16 * r(), ink = [0, 1, 2].map(() => 100 * r()), ground = [0, 1, 2].map(() => 255 - 100 * r());
  const stain = Array.from({length: 64}, () => 60 * (r() - .5)); // of 8 x 8 pixels each
  return png(64, (x, y) => (shapes[name](Math.round(x - cx), Math.round(y - cy)) ? ink : ground).map(v => v + stain[(y >> 3) * 8 + (x >> 3)]));
}
const files = [];
for (let i = 0; i < 36; i++) {
  const name = names[i % 3], file = path.join(work, `${name.replace(/\W.*/, "")}-${i}.png`);
  fs.writeFileSync(file, draw(name, 1000 + i));
  files.push(file);
}
const classOf = title => names.find(n => title.startsWith(n.replace(/\W.*/, "")));

/* ------------------------------------------------------------------ service */

const freePort = () => new Promise((ok, no) => {
  const s = net.createServer().on("error", no).listen(0, "127.0.0.1", () => { const { port } = s.address(); s.close(() => ok(port)); });
});
const until = async (what, condition, seconds = 60) => {
  for (let left = seconds * 20; left > 0; left--) {
    const value = await condition();
    if (value) return value;
    await new Promise(ok => setTimeout(ok, 50));
  }
  throw new Error("still not after " + seconds + " s: " + what);
};
let server = null, url = process.env.SFP_PAGE_URL;
if (!url) {
  url = `http://127.0.0.1:${await freePort()}`;
  server = spawn(program, ["serve", "--listen", url.slice(7), "--out", path.join(work, "out")], {stdio: ["ignore", "inherit", "inherit"], env: {...process.env, STREAMFP_REGISTRY: path.join(work, "runs.db")}});
  server.on("exit", (code, signal) => { if (code) say(`the service ended with ${code ?? signal}`); });
  await until("the service answers", () => fetch(url + "/readyz").then(r => r.ok, () => false));
}
const api = async rest => (await fetch(url + "/v1" + rest)).json();

/* --------------------------------------------------------------------- test */

const browser = await chromium.launch({executablePath: process.env.SFP_CHROMIUM, args: ["--no-sandbox"]});
const errors = [];
try {
  const page = await browser.newPage({viewport: {width: 1400, height: 900}, colorScheme: "light", reducedMotion: "reduce"});
  page.setDefaultTimeout(60000);
  page.on("console", m => { if (m.type() === "error" && !m.location().url.endsWith("/favicon.ico")) errors.push(m.text()); });
  page.on("pageerror", e => errors.push(String(e)));
  await page.goto(url + "/");

  // first visit: three steps
  await page.getByText("Welcome. Nothing has been learned yet").waitFor();
  await audit(page, "first visit");
  for (const name of names) {
    await page.locator("#first-name").fill(name);
    await page.keyboard.press("Enter");
    await page.locator("#add-class option", {hasText: name}).waitFor({state: "attached"});
  }
  await page.locator("#add-class").selectOption("");
  await page.locator("#files").setInputFiles(files);
  await page.locator("#queue .tile").nth(20).waitFor();
  assert.equal(await page.locator("b", {hasText: "stripes"}).count(), 0);
  say("36 images wait");

  // 30 labels by keyboard; the first three are of different classes, so that no model without one of them can know its class
  const order = (await api("/classes")).classes.map(c => c.name);
  let early = null;
  await page.locator("#queue .tile").first().focus();
  for (let i = 0; i < 30; i++) {
    const focused = () => page.evaluate(() => document.activeElement.closest("#queue .tile")?.title);
    let title = await until("a tile has the focus", focused);
    for (let k = 0; i < 3 && classOf(title) !== order[i]; k++, title = await focused())
      await page.keyboard.press(k < 24 ? "ArrowRight" : "ArrowLeft");
    await page.keyboard.press(String(1 + order.indexOf(classOf(title))));
    await page.waitForFunction(t => !document.querySelector(`#queue [title="${t}"]`), title);
    if (i === 2) early = await learned(page, 3);
  }
  const late = await learned(page, 30);
  say(`accuracy ${early} % after 3 labels, ${late} % after 30`);
  assert.ok(late > early, "the accuracy rises");
  assert.match(await page.locator("#class-list").innerText(), /30|10|9|11/);

  // one label is corrected to a wrong class, found among the mix-ups and the suspects, and the correction is undone
  await page.getByRole("button", {name: "of disc answered as disc"}).press("Enter");
  const tile = page.locator("#dialog .tile").first(), victim = await tile.getAttribute("title");
  await tile.press("Enter");
  await page.locator("#dialog").getByRole("button", {name: "cross", exact: true}).press("Enter");
  await page.locator("#dialog").getByRole("button", {name: "Close"}).press("Enter");
  const wrong = await until("the image is a suspect", async () => (await api("/suspects?label=cross&limit=100")).samples.find(s => s.name === victim && s.suggested !== "cross"));
  const cell = page.getByRole("button", {name: `of cross answered as ${wrong.suggested}`});
  await cell.press("Enter");
  await page.locator(`#dialog .tile[title="${victim}"]`).waitFor();
  await page.keyboard.press("Escape");
  await page.locator("#suspect-list").getByRole("button", {name: `keep ${victim} as cross`}).waitFor();
  say(`${victim} is among the mix-ups and the suspects`);
  await page.keyboard.press("u");
  await until("the label is the old one", async () => (await api("/samples?label=disc&limit=100")).samples.find(s => s.name === victim && s.standing === "learned"));
  await page.locator("#suspect-list").getByRole("button", {name: `keep ${victim} as cross`}).waitFor({state: "detached"});
  say("undone");

  // a first label is taken back before it is sent
  const waiting = await page.locator("#queue .tile").first().getAttribute("title");
  await page.locator("#queue .tile").first().press("1");
  await page.keyboard.press("u");
  await page.locator(`#queue .tile[title="${waiting}"]`).waitFor();

  // sizes and colours
  for (const width of [1400, 390]) {
    await page.setViewportSize({width, height: width === 390 ? 844 : 900});
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({colorScheme});
      await audit(page, `${width} pixels, ${colorScheme}`);
    }
    await page.emulateMedia({colorScheme: "light"});
    await page.evaluate(() => { document.activeElement.blur(); document.querySelector("#say").replaceChildren(); scrollTo(0, 0); });
    if (process.env.SFP_UPDATE)
      await page.screenshot({path: path.join(docs, `service-${width}.png`)});
  }
  assert.deepEqual(errors, [], "the console has no errors");
  say("passed");
} catch (error) {
  console.error(error);
  if (errors.length) console.error("console: " + errors.join("\n"));
  process.exitCode = 1;
} finally {
  await browser.close();
  server?.kill("SIGINT");
}

/* Waits until the service has learned n samples and the page shows it; returns the accuracy in percent. */
async function learned(page, n) {
  await until(`${n} samples are learned`, async () => (await api("/status")).samples.learned >= n);
  const text = await until("the page shows it", async () => {
    const shown = await page.locator("#overall").innerText();
    return new RegExp(`of ${n} images`).test(shown) && shown;
  });
  return Number(text.match(/^([\d.]+) %/)[1]);
}

async function audit(page, where) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${where}: ${overflow} pixels too wide`);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, {resultTypes: ["violations"]}));
  assert.deepEqual(violations.map(v => `${v.id}: ${v.nodes.map(n => n.html).join(" ")}`), [], where);
}
