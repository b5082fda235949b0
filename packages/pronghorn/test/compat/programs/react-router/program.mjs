import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createRequestHandler } from '@react-router/express';
import express from 'express';
import * as build from './build/server/index.js';

const client = path.join(path.dirname(fileURLToPath(import.meta.url)), 'build', 'client');

export default () =>
  express()
    .disable('x-powered-by')
    .use(express.static(client))
    .use(createRequestHandler({ build, mode: 'production' }));
