'use strict';

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');
const { isQuick, manifestOf, names } = require('./install');
const { doors, referenceOf, start, ways } = require('./running');

/** What hangs is ended. */
const CASE_SECONDS = 300;

/** Tests what a program answers over each protocol against what it answers over node:http. */
function suite(name) {
  const { cases } = manifestOf(name);
  describe(name, () => {
    let running;
    before(async () => {
      running = await start(name);
    });
    after(() => running?.stop());

    for (const [subject, own] of Object.entries(cases)) {
      for (const [title, given] of Object.entries(own)) {
        const { run, differs, over = ways } = typeof given === 'function' ? { run: given } : given;
        it(`${subject}: ${title}`, { timeout: CASE_SECONDS * 1000 }, async () => {
          const asked = new Map(doors.map((door) => [door, run(running.asking(door))]));
          await Promise.all(asked.values());
          for (const way of ways) {
            const [answer, reference] = await Promise.all([
              asked.get(way),
              asked.get(referenceOf(way)),
            ]);
            const context = `${way}\n${running.output()}`;
            if (differs === undefined || !over.includes(way))
              assert.deepEqual(answer, reference, context);
            else assert.notDeepEqual(answer, reference, `no longer true over ${way}: ${differs}`);
          }
        });
      }
    }
  });
}

/** Tests the programs that are installed for it and cover what is wanted, or of these the ones that PRONGHORN_PROGRAMS=next,nuxt names. */
function suites(isWanted) {
  const named = process.env.PRONGHORN_PROGRAMS?.split(',') ?? names;
  for (const name of names) {
    const kinds = Object.values(manifestOf(name).covers);
    if (!isQuick(name) && named.includes(name) && kinds.some(isWanted)) suite(name);
  }
}

module.exports = { suite, suites };
