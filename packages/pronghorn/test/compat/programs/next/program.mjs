import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const next = createRequire(import.meta.url)('next');
const dir = path.dirname(fileURLToPath(import.meta.url));
let handler;

async function prepare() {
  const app = next({ dev: process.env.NODE_ENV === 'development', dir });
  await app.prepare();
  return app.getRequestHandler();
}

export default async () => {
  const handle = await (handler ??= prepare());
  return (req, res) => handle(req, res);
};
