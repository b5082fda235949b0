import path from 'node:path';
import { fileURLToPath } from 'node:url';
import express from 'express';
import { handler } from './dist/server/entry.mjs';

const client = path.join(path.dirname(fileURLToPath(import.meta.url)), 'dist', 'client');

export default () => express().use(express.static(client)).use(handler);
