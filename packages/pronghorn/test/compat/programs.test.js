'use strict';

// Frameworks and middlewares from npm, each in a folder of its own, over pronghorn and node:http side by side. Those that are development
// dependencies run in ../compatibility.test.js.

const { suites } = require('./support/suite');

suites((kind) => !['meta-framework', 'observability'].includes(kind));
