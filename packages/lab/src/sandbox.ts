import { chmodSync, chownSync, mkdirSync, mkdtempSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import puppeteer, { type Browser } from 'puppeteer-core';
import { messageOf } from './errors.js';
import { closeBrowser } from './load/close.js';
import { findOnPath } from './programs.js';
import { removeFolder } from './scratch.js';

/** How Chromium is kept apart from the machine that it runs on. */
export interface Confinement {
  /** Whether Chromium's own sandbox is on. */
  readonly sandbox: boolean;
  /** Another user whom it runs as: root gets no sandbox. */
  readonly user?: User;
  /** Why the sandbox is off. */
  readonly reason?: string;
}

interface User {
  readonly id: number;
  readonly group: number;
  /** The program that becomes this user. */
  readonly setpriv: string;
}

/** `nobody` and `nogroup`, who own no files and are in the name table of each Linux. */
const NOBODY = 65_534;
/** Where everybody may write. The path of a socket that Chromium makes in it is short of 108 bytes. */
const COMMON_TEMPORARY = '/tmp';

/** What a browser is started with. */
export interface Launch {
  readonly chromium: string;
  readonly confinement: Confinement;
  /** The browser's own, where its profile is made. */
  readonly folder: string;
  readonly args: readonly string[];
  /** Files that it is going to write. */
  readonly writes?: readonly string[];
  /** How long it may take over a command, instead of the library's three minutes. */
  readonly protocolTimeout?: number;
}

/** Starts a browser with a fresh profile. It ends when this process does, however that ends. */
export async function launchBrowser(launch: Launch): Promise<Browser> {
  const { chromium, confinement, folder, args, writes = [], protocolTimeout } = launch;
  const { sandbox, user } = confinement;
  const userDataDir = join(folder, 'user-data');
  mkdirSync(userDataDir);
  for (const file of writes) writeFileSync(file, '');
  if (user !== undefined) {
    admit(folder, user);
    for (const path of [userDataDir, ...writes]) chownSync(path, user.id, user.group);
  }
  const all = [...(sandbox ? [] : ['--no-sandbox']), ...args];
  const common = {
    // Over a pipe the browser ends when this process does.
    pipe: true,
    ...(protocolTimeout !== undefined && { protocolTimeout }),
    handleSIGINT: false,
    handleSIGTERM: false,
    handleSIGHUP: false,
  };
  if (user === undefined) {
    return puppeteer.launch({ ...common, executablePath: chromium, headless: true, userDataDir, args: all });
  }
  return puppeteer.launch({
    ...common,
    executablePath: user.setpriv,
    ignoreDefaultArgs: true,
    args: [
      ...[`--reuid=${user.id}`, `--regid=${user.group}`, '--clear-groups', '--', chromium],
      ...puppeteer.defaultArgs({ headless: true, userDataDir, args: all }),
    ],
    env: { ...process.env, HOME: userDataDir, TMPDIR: COMMON_TEMPORARY },
  });
}

/** Makes a temporary folder that the browser's user gets through. */
export function makeFolderFor({ user }: Confinement, prefix: string): string {
  const folder = mkdtempSync(prefix);
  if (user !== undefined) admit(folder, user);
  return folder;
}

/** Lets the user through to what is its own in a folder, and nobody else. */
export function admit(folder: string, { group }: User): void {
  chownSync(folder, -1, group);
  chmodSync(folder, 0o710);
}

/** Finds out, by starting it, how well Chromium can be confined here; its folder is made within `within`. */
export async function findConfinement(chromium: string, within: string): Promise<Confinement> {
  const isRoot = process.geteuid?.() === 0;
  const user = isRoot ? otherUser(within) : undefined;
  if (typeof user === 'string') return { sandbox: false, reason: user };
  const as = user === undefined ? {} : { user };
  const refusal = await whyNot({ sandbox: true, ...as }, chromium, within);
  if (refusal === undefined) return { sandbox: true, ...as };
  if (user === undefined) return { sandbox: false, reason: refusal };
  const isAtLeastOther = (await whyNot({ sandbox: false, user }, chromium, within)) === undefined;
  return { sandbox: false, ...(isAtLeastOther && { user }), reason: refusal };
}

/** Whom Chromium can run as instead of root, or why as nobody. */
function otherUser(within: string): User | string {
  const setpriv = findOnPath(['setpriv']);
  if (setpriv === undefined) return 'root gets none, and the program setpriv is not there to run it as another user';
  for (let folder = dirname(within); ; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) {
      return `root gets none, and ${folder} keeps other users out; set TMPDIR to a folder that lets them in`;
    }
    if (folder === dirname(folder)) return { id: NOBODY, group: NOBODY, setpriv };
  }
}

/** Starts the browser once, and asks it; undefined if all is as it should be. */
async function whyNot(confinement: Confinement, chromium: string, within: string): Promise<string | undefined> {
  const { user, sandbox } = confinement;
  if (user !== undefined) admit(within, user);
  const folder = makeFolderFor(confinement, join(within, 'sandbox-'));
  try {
    const browser = await launchBrowser({ chromium, confinement, folder, args: ['--disable-gpu', '--no-first-run'] });
    try {
      if (!sandbox) return undefined;
      const [page] = await browser.pages();
      await page?.goto('chrome://sandbox');
      const said = String(await page?.evaluate('document.body.innerText'));
      return said.includes('You are adequately sandboxed')
        ? undefined
        : `Chromium says: ${said.trim().split('\n').at(-1)}`;
    } finally {
      await closeBrowser(browser);
    }
  } catch (thrown) {
    const lines = messageOf(thrown).split('\n');
    const telling = lines.find((line) => /sandbox|FATAL/i.test(line)) ?? lines[0] ?? '';
    return `Chromium does not start with it: ${telling.replace(/^.*\]\s*/, '').trim()}`;
  } finally {
    await removeFolder(folder);
  }
}

/** For people: "on, as user 65534", or "off: …". */
export function confinementInWords({ sandbox, user, reason }: Confinement): string {
  const as = user === undefined ? '' : `, as user ${user.id}`;
  return `${sandbox ? 'on' : 'off'}${as}${reason === undefined ? '' : `: ${reason}`}`;
}
