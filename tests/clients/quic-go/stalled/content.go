package main

import (
	"encoding/binary"
	"io"
)

// content is a request's or response's own content: the position in it and its number, so that misplaced bytes show.
type content struct {
	number uint64
	at     int64
	size   int64
}

func newContent(number int, size int64) *content {
	return &content{number: uint64(number), size: size}
}

// blockBytes is the length of a position with its number.
const blockBytes = 16

func (c *content) Read(buffer []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	var block [blockBytes]byte
	filled := 0
	for filled < len(buffer) && c.at < c.size {
		binary.BigEndian.PutUint64(block[:8], c.number)
		binary.BigEndian.PutUint64(block[8:], uint64(c.at/blockBytes))
		part := block[c.at%blockBytes:]
		if left := c.size - c.at; int64(len(part)) > left {
			part = part[:left]
		}
		count := copy(buffer[filled:], part)
		filled += count
		c.at += int64(count)
	}
	return filled, nil
}
