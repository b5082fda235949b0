import {
  defineHandler,
  getCookie,
  H3,
  HTTPError,
  html,
  readBody,
  redirect,
  setCookie,
  toNodeHandler,
} from 'h3';
import { getQuery, getRequestIP, getRouterParam, iterable, onResponse } from 'h3';

export function makeApp() {
  const app = new H3({ silent: true });
  app.use(onResponse((response) => response.headers.set('x-after', String(response.status))));
  app.get('/users/:id', (event) => ({
    id: getRouterParam(event, 'id'),
    query: getQuery(event),
    ip: getRequestIP(event),
  }));
  app.post('/json', async (event) => {
    event.res.status = 201;
    return readBody(event);
  });
  app.post('/echo', (event) => event.req.body);
  app.get('/page', () => html`<p>${'<escaped>'}</p>`);
  app.get('/cookies', (event) => {
    setCookie(event, 'name', 'a b', { httpOnly: true });
    return { name: getCookie(event, 'name') ?? null };
  });
  app.get('/iterable', () => iterable(['a', 'b', 'c']));
  app.get('/redirect', () => redirect('/page'));
  app.get('/empty', () => null);
  app.get('/error', () => {
    throw new HTTPError({ status: 418, message: 'meant', data: { why: 'teapot' } });
  });
  app.all(
    '/method',
    defineHandler((event) => event.req.method),
  );
  return app;
}

export default () => toNodeHandler(makeApp());
