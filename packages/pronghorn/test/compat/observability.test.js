'use strict';

// What tools that watch node:http see of pronghorn/http.

const { suites } = require('./support/suite');

suites((kind) => kind === 'observability');
