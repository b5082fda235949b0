import { fileURLToPath } from 'node:url';

/** The package's own folder, seen from where the tests are compiled to: dist/test/test. */
export const packageFolder = fileURLToPath(new URL('../../..', import.meta.url));
