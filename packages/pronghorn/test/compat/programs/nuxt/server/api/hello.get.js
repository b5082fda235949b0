export default defineEventHandler((event) => {
  setHeader(event, 'x-own', '1');
  setCookie(event, 'visited', 'yes');
  return { path: event.path, query: getQuery(event) };
});
