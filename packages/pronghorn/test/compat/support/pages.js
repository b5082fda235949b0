'use strict';

// What pages of meta-frameworks have in common.

/** Status and type of an answer whose body has parts that are drawn by lot. */
const text = ({ status, fields }) => [status, fields['content-type']];

/** All scripts and styles that a page names, of which there has to be one at the least. */
async function assets(ask, page) {
  const names = page.matchAll(/(?:src|href)="\.?(\/[^"]+\.(?:m?js|css)[^"]*)"/g);
  const targets = [...new Set(Array.from(names, ([, target]) => target))];
  if (targets.length === 0) throw new Error(`the page names no assets: ${page}`);
  const answers = [];
  for (const target of targets)
    answers.push([target, await ask(target, { headers: { 'accept-encoding': 'gzip' } })]);
  return answers;
}

module.exports = { assets, text };
