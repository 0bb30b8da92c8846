// What the bench's requests ask for, in Node.js. It notes moments on standard output.
'use strict';
const { ports, secure, cert, key } = JSON.parse(process.argv[2]);
const modules = { http: require('http'), https: require('https'), http2: require('http2') };
const fs = require('fs');

const note = (what, id) => process.stdout.write(`${what} ${id} ${process.hrtime.bigint()}\n`);
const wait = (ms) => ms > 0 ? new Promise((resolve) => setTimeout(resolve, ms)) : undefined;

function asked(url) {
  const q = new URL(url, 'http://bench').searchParams;
  const number = (name) => Number(q.get(name) || 0);
  return { id: q.get('id'), number };
}

async function answer(request, response) {
  const { id, number } = asked(request.url);
  if (!id) return response.end();
  note('b', id);
  if (!number('now')) for await (const _ of request);
  if (number('hint')) {
    response.writeEarlyHints({ link: ['</style.css>; rel=preload; as=style', '</script.js>; rel=preload; as=script'] });
    await wait(number('hint'));
  }
  await wait(number('work'));
  const size = number('size'), parts = Math.max(1, number('parts'));
  response.writeHead(200, number('chunked') ? {} : { 'content-length': size * parts });
  if (number('early')) {
    response.flushHeaders();
    await wait(number('early'));
    note('m', id);
  }
  const part = Buffer.alloc(size, 'x');
  for (let i = 0; i < parts; i++) {
    if (i > 0) {
      await wait(number('pause'));
      note('m', id);
    }
    if (i === parts - 1) note('l', id);
    response.write(part);
  }
  response.end();
}

// A WebSocket's messages are echoed as they are: nobody here reads them.
function upgrade(request, socket) {
  const { id, number } = asked(request.url);
  note('b', id);
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n');
  socket.on('error', () => {});
  socket.on('data', async (message) => {
    await wait(number('work'));
    socket.write(message);
  });
}

for (const { port, h2 } of ports) {
  const options = secure ? { cert: fs.readFileSync(cert), key: fs.readFileSync(key) } : {};
  let server;
  if (h2) server = secure ? modules.http2.createSecureServer(options) : modules.http2.createServer(options);
  else server = (secure ? modules.https : modules.http).createServer(options);
  server.on('request', (request, response) => {
    request.on('error', () => {});
    response.on('error', () => {});
    answer(request, response).catch(() => response.destroy());
  });
  server.on('upgrade', upgrade);
  server.httpAllowHalfOpen = true;
  server.keepAliveTimeout = 3600 * 1000;
  server.requestTimeout = 0;
  server.headersTimeout = 0;
  server.listen(port, '0.0.0.0');
}
