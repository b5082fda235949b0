import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const { hello, host, pem, port, require } = createRequire(import.meta.url)('./arguments.cjs');
const { createSecureServer } = await import(pathToFileURL(require.resolve('@currentspace/http3')).href);

const server = createSecureServer({ ...pem(), runtimeMode: 'portable' }, (stream) => {
  stream.respond({ ':status': '200' });
  stream.end(hello);
});
server.listen(port, host);
