'use strict';

const { cases } = require('./h3');

module.exports = { covers: { srvx: 'server of fetch handlers' }, cases: { srvx: cases.h3 } };
