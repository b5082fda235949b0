// Counts open connections with a filter, and serves the counters.
const { App } = require('pronghorn');

let open = 0;
const app = App()
  .get('/statistics', (res) => res.end(JSON.stringify({ open, ...app.getStatistics() })))
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
app.filter((_connection, count) => (open += count));
