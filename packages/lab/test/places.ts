import { fileURLToPath } from 'node:url';

/** The package's own folder, relative to the compiled tests: dist/test/test. */
export const packageFolder = fileURLToPath(new URL('../../..', import.meta.url));
