const express = require('express');
const { createServer } = require('pronghorn/http');

const app = express().get('/', (req, res) => res.send(`hello over HTTP/${req.httpVersion}`));
// With { key, cert } as first argument: HTTP/1.1, HTTP/2 and HTTP/3.
createServer(app).listen(process.env.PORT ?? 3000, () => console.log('listening'));
